# history: what this host has been and would be after a reboot: the generations of the
# system profile, oldest first, each "NUMBER SECONDS TOPLEVEL LABEL", and which parts of
# the running system only a reboot brings.
history() {
    first_line /run/current-system/nixos-version label
    for link in $(ls -d /nix/var/nix/profiles/system-*-link 2>/dev/null | sort -V); do
        n=${link##*system-} n=${n%-link}
        case $n in '' | *[!0-9]*) continue ;; esac
        past=$(readlink -f "$link") named=
        [ -r "$past/nixos-version" ] && IFS= read -r named <"$past/nixos-version"
        say past "$n $(stat -c %Y "$link") $past $named"
    done
    if [ -e /run/booted-system/kernel ] && [ -e /run/current-system/kernel ]; then
        for part in kernel initrd kernel-modules; do
            [ "$(readlink -f /run/booted-system/$part)" = "$(readlink -f /run/current-system/$part)" ] || say reboot-pending $part
        done
        [ "$(cat /run/booted-system/kernel-params 2>/dev/null)" = "$(cat /run/current-system/kernel-params 2>/dev/null)" ] || say reboot-pending kernel-params
    fi
    say history yes
}
