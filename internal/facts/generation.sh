# choose_generation N: prints the generation of the system profile to go back to
# and its toplevel: N, or for 0 the newest one up to the present whose toplevel is
# not the running one. On a host that runs a system which its profile doesn't lead
# to, as after a switch that was not finished, that is the profile's own.
choose_generation() {
    profiles=/nix/var/nix/profiles
    running=$(readlink -f /run/current-system)
    present=$(readlink $profiles/system) present=${present##*system-} present=${present%-link}
    best=0
    for link in $profiles/system-*-link; do
        n=${link##*system-} n=${n%-link}
        case $n in '' | *[!0-9]*) continue ;; esac
        if [ "$1" -gt 0 ]; then
            [ "$n" = "$1" ] && best=$n
        elif [ "$n" -le "${present:-0}" ] && [ "$n" -gt $best ] && [ "$(readlink -f "$link")" != "$running" ]; then
            best=$n
        fi
    done
    [ $best -gt 0 ] && chosen=$(readlink -f $profiles/system-$best-link) && say chosen "$best $chosen"
}
