# Builds $derivation, which this host has, so that it has $system. POSIX sh.
set -f
quiet=--no-build-output
[ "$logs" = yes ] && quiet=
links=/nix/var/nix/gcroots/deploy-ssh-copy kept=
if [ -w /nix/var/nix/gcroots ]; then
    # It becomes a root with the first moment of the system, and goes when a profile
    # leads there, as after a copy.
    kept=$links/${derivation##*/}
    mkdir -p "$kept" && ln -sfn "$system" "$links/last" || exit
fi
attended nix-store --realise --keep-going $quiet "$derivation!out" 2>&1 >/dev/null
# Whatever was said, the store's own word counts.
nix-store --check-validity "$system" 2>/dev/null || exit 1
[ -z "$kept" ] || rm -rf "$kept"
