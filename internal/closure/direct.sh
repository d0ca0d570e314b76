# Brings $toplevel into this host's store: $sent is all that is missing, for the receiving
# end of ssh:// stores, in base64 and packed for $unpack. POSIX sh. $missing are the paths.
set -f
private_cache
keep "$toplevel" $missing
# Whether it is whole the store finds out by each path's hash.
printf '%s\n' "$sent" | base64 -d | $unpack >"$scratch/sent" || exit
nix-store --serve --write <"$scratch/sent" 2>&1 >/dev/null
arrived
