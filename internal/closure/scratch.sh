# private_cache has Nix remember what caches answer in a directory of the script's own,
# which goes when the script ends. POSIX sh.
private_cache() {
    scratch=$(mktemp -d /run/deploy-ssh-copy.XXXXXXXX 2>/dev/null || mktemp -d) || exit
    trap 'rm -rf "$scratch"' EXIT
    XDG_CACHE_HOME=$scratch
    export XDG_CACHE_HOME
}
