# Brings $toplevel into this host's store from the caches in $config, as well as they can.
# POSIX sh. $missing are the paths to fetch; none means that the toplevel leads to all.
set -f
private_cache
NIX_CONFIG="$NIX_CONFIG
$config"
export NIX_CONFIG

keep "$toplevel" $missing

# A derivation is to be fetched and not built: an output is wanted of it that it doesn't
# have, which Nix finds out when it has it, and then ends. So it is the only one that is
# named, and leads to the others.
case $toplevel in *.drv) wanted=$toplevel!deploy-ssh-fetches ;; *) wanted=$toplevel ;; esac
attended nix-store --realise $wanted $(printf '%s\n' $missing | grep -v '[.]drv$') 2>&1 >/dev/null
arrived
