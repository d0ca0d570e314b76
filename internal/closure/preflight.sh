# Says what this host lacks of a closure and how it could be brought here, one
# "name value" a line. POSIX sh; nothing is written but a private cache that goes.
# The paths are in $paths, with $caches yes the substituters are tried, and $boot_files
# are the hash parts of what goes to /boot. Where at most $few paths are missing, and none
# of them is one of $large (hash parts), the substituters are asked for them.
set -f
say() { printf '%s %s\n' "$1" "$2"; }
nix() { command nix --extra-experimental-features nix-command "$@"; }
private_cache
settings= verb=

# What is on the way to the store, and in the way.
while read -r id parent device root point options rest; do
    case /nix/store/ in
    "${point%/}/"*)
        # The deepest mount counts, and of several in one place the last.
        [ ${#point} -ge ${#deepest} ] && deepest=$point options_there=${rest##* - }
        ;;
    esac
done </proc/self/mountinfo
# A read-only bind mount is what NixOS has, and Nix goes around it; a file system that
# is itself read-only is another matter.
case ${options_there##* } in ro | ro,*)
    say read-only "$deepest"
    say preflight complete
    exit 0
    ;;
esac

missing=$(printf '%s\n' "$paths" | xargs nix-store --check-validity --print-invalid) || exit
for path in $missing; do
    say missing "$path"
    few=$((few - 1)) hash=${path#/nix/store/}
    case " $large " in *" ${hash%%-*} "*) few=-1 ;; esac
done

free() { df -Pk "$1" 2>/dev/null | tail -n 1; }
set -- $(free /nix/store)
store_device=$1
[ -n "$4" ] && say store-free "$4"
for boot in /boot /efi /boot/efi; do
    # Where kernels are read from the store nothing of them comes here.
    [ -e $boot/loader/loader.conf ] || [ -d $boot/kernels ] || [ -d $boot/nixos ] || continue
    set -- $(free $boot)
    [ -n "$4" ] && [ "$1" != "$store_device" ] || continue
    say boot-free "$4"
    for hash in $boot_files; do
        [ -n "$(find $boot -maxdepth 4 -name "*$hash*" 2>/dev/null | head -n 1)" ] && say boot-has "$hash"
    done
    break
done

# How this user stands to the store. Each start of Nix costs, so that only what
# matters is asked.
command -v nix >/dev/null || say no-nix yes
settings() {
    [ -n "$settings" ] || settings=$(nix config show 2>/dev/null || nix show-config 2>/dev/null)
    printf '%s\n' "$settings" | sed -n "s/^$1 = //p"
}
ping() {
    verb=info
    store=$(nix store info "$@" 2>&1) && return
    verb=ping # up to Nix 2.18
    store=$(nix store ping "$@" 2>&1)
}
trusted() {
    case ${NIX_REMOTE:-auto} in auto | local) [ -w /nix/var/nix/db ] && return ;; esac
    ping
    case $store in *'Trusted: 1'*) return 0 ;; *'Trusted: 0'*) return 1 ;; esac
    # Before 2.14 the daemon doesn't say.
    user=$(id -un) groups=" $(id -Gn) "
    for who in $(settings trusted-users); do
        case $who in "$user" | '*') return 0 ;; @*) case $groups in *" ${who#@} "*) return 0 ;; esac ;; esac
    done
    return 1
}
if ! trusted; then
    say untrusted "$(id -un)"
    for key in $(settings trusted-public-keys); do say trusted-key "${key%%:*}"; done
fi

# A substituter that doesn't answer would cost its time for every path.
if [ "$caches" = yes ] && [ -n "$missing" ] && substituters=$(settings substituters) && [ -n "$substituters" ]; then
    [ -n "$verb" ] || ping
    answers=$(
        for url in $substituters; do
            {
                if said=$(timeout 4 nix --extra-experimental-features nix-command store $verb --store "$url" \
                    --option connect-timeout 3 --option download-attempts 1 2>&1); then
                    say cache "$url"
                else
                    say dead-cache "$url $(printf '%s' "$said" | grep -m 1 -o 'error:.*')"
                fi
            } &
        done
        wait
    )
    [ -n "$answers" ] && printf '%s\n' "$answers"
    live=$(printf '%s\n' "$answers" | sed -n 's/^cache //p' | tr '\n' ' ')
    [ $few -ge 0 ] && [ -n "$live" ] && in_caches 5 "$missing" "$live"
fi
say preflight complete
