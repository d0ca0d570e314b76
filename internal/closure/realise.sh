# Brings $toplevel into this host's store from the caches in $config, as well as they can.
# POSIX sh. $missing are the paths to fetch; none means that the toplevel leads to all.
set -f
private_cache
NIX_CONFIG="$NIX_CONFIG
$config"
export NIX_CONFIG

# Each path is kept from the garbage collector from the moment it is there: a link
# to a path that isn't valid yet is no root, and becomes one.
links=/nix/var/nix/gcroots/deploy-ssh-copy arriving=
if [ -w /nix/var/nix/gcroots ]; then
    arriving=$links/${toplevel##*/}
    mkdir -p "$arriving" && printf '%s\n' "$toplevel" $missing | xargs ln -sfn -t "$arriving" || exit
    # What was begun and given up is not kept for ever.
    find $links -mindepth 1 -maxdepth 1 -type d -mtime +7 -exec rm -rf {} +
fi

# A derivation is to be fetched and not built: an output is wanted of it that it doesn't
# have, which Nix finds out when it has it, and then ends. So it is the only one that is
# named, and leads to the others.
case $toplevel in *.drv) wanted=$toplevel!deploy-ssh-fetches ;; *) wanted=$toplevel ;; esac
attended nix-store --realise $wanted $(printf '%s\n' $missing | grep -v '[.]drv$') 2>&1 >/dev/null

# Whatever was said, the store's own word counts.
nix-store --check-validity "$toplevel" 2>/dev/null || exit 1
case $toplevel in *.drv) exit 0 ;; esac # it stays kept until it is built
if [ -n "$arriving" ]; then
    ln -sfn "$toplevel" $links/last
    rm -rf "$arriving"
fi
