# What nixos-rebuild (the one in Python) does to a remote host for `switch`, from a
# system that is built: the same commands, in the same order, over one shared
# connection that is opened when first needed.
# usage: rebuild.sh TOPLEVEL PORT
set -eu
toplevel=$1
control=$(mktemp -d)
trap 'ssh -o ControlPath="$control/ssh-%n" -O exit root@127.0.0.1 2>/dev/null; rm -rf "$control"' EXIT
options="-o ControlMaster=auto -o ControlPath=$control/ssh-%n -o ControlPersist=60 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -p $2"
remote() {
    # shellcheck disable=SC2086,SC2016
    ssh $options root@127.0.0.1 -- /bin/sh -c "'exec /usr/bin/env -i PATH=\"\${PATH-}\" \"\$@\"'" sh "$@" </dev/null
}
NIX_SSHOPTS=$options nix-copy-closure --use-substitutes --to root@127.0.0.1 "$toplevel"
remote test -f "$toplevel/nixos-version"
remote nix-env -p /nix/var/nix/profiles/system --set "$toplevel"
remote test -d /run/systemd/system
remote systemd-run -E LOCALE_ARCHIVE -E NIXOS_INSTALL_BOOTLOADER -E NIXOS_NO_CHECK --collect --no-ask-password --pipe --quiet \
    --service-type=exec --unit=nixos-rebuild-switch-to-configuration "$toplevel/bin/switch-to-configuration" switch
