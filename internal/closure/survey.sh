# Says what a plan wants to know of this host beyond what it lacks, one "name value" a
# line, after the answer of preflight. POSIX sh; nothing is written but a private cache
# that goes. preflight is defined in front of this, and $paths is the wanted closure.
LC_ALL=C
export LC_ALL
lacks=$(preflight) || exit
printf '%s\n' "$lacks"
say() { printf '%s %s\n' "$1" "$2"; }
set -f

# What differs between the running closure and the wanted one: what stands in one of
# the two alone. Sent whole they would be the most of the answer.
running=$(readlink -f /run/current-system 2>/dev/null)
if [ -n "$running" ] && [ -e "$running" ] && current=$(nix-store -qR "$running" 2>/dev/null); then
    say running-read yes
    gone=$(printf '%s\n' "$current" "$paths" "$paths" | sort | uniq -u)
    for path in $gone; do say gone "$path"; done
    for path in $(printf '%s\n' "$paths" "$current" "$current" | sort | uniq -u); do say came "$path"; done
    [ -n "$gone" ] && printf '%s\n' "$gone" | xargs nix-store -q --size | sed 's/^/gone-size /'
fi
[ -r "$running/nixos-version" ] && IFS= read -r label <"$running/nixos-version"
[ -n "$label" ] && say label "$label"

# What booted, of the parts that only a reboot changes.
if [ -e /run/booted-system/kernel ]; then
    for part in kernel initrd kernel-modules; do
        [ -e /run/booted-system/$part ] && say "booted-$part" "$(readlink -f /run/booted-system/$part)"
    done
    say booted-kernel-params "$(tr '\n\r' '  ' </run/booted-system/kernel-params 2>/dev/null)"
fi

# The newest generation: the next one has the number after it.
set +f
newest=0
for link in /nix/var/nix/profiles/system-*-link; do
    n=${link##*system-} n=${n%-link}
    case $n in '' | *[!0-9]*) continue ;; esac
    [ "$n" -gt $newest ] && newest=$n
done
[ $newest -gt 0 ] && say newest "$newest $(readlink -f /nix/var/nix/profiles/system-$newest-link)"
set -f

# What the host's own caches have of what is missing.
missing=$(printf '%s\n' "$lacks" | sed -n 's/^missing //p')
live=$(printf '%s\n' "$lacks" | sed -n 's/^cache //p' | tr '\n' ' ')
if [ -n "$missing" ] && [ -n "$live" ]; then
    private_cache
    in_caches 20 "$missing" "$live"
fi
say surveyed yes
