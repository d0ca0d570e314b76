# keep PATH... keeps what a copy of $toplevel brings from the garbage collector from the
# moment it is there: a link to a path that isn't valid yet is no root, and becomes one.
# POSIX sh.
keep() {
    links=/nix/var/nix/gcroots/deploy-ssh-copy arriving=
    [ -w /nix/var/nix/gcroots ] || return 0
    arriving=$links/${toplevel##*/}
    mkdir -p "$arriving" && printf '%s\n' "$@" | xargs ln -sfn -t "$arriving" || exit
    # What was begun and given up is not kept for ever.
    find $links -mindepth 1 -maxdepth 1 -type d -mtime +7 -exec rm -rf {} +
}

# arrived ends a copy. Whatever was said, the store's own word counts.
arrived() {
    nix-store --check-validity "$toplevel" 2>/dev/null || exit 1
    case $toplevel in *.drv) exit 0 ;; esac # it stays kept until it is built
    [ -n "$arriving" ] || return 0
    ln -sfn "$toplevel" $links/last
    rm -rf "$arriving"
}
