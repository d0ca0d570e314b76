#!/bin/bash
# A toplevel's init. NixOS runs it as the last part of booting, before systemd;
# here a unit early in systemd's own boot runs it (stage-2.service), which
# comes to the same: the toplevel is activated before sysinit.target, so before
# file rules and ordinary units.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
systemConfig=$(dirname "$(readlink -f "$0")")
echo "booting system configuration $systemConfig"
ln -sfn "$systemConfig" /run/booted-system
mkdir -p /nix/var/nix/gcroots
ln -sfn /run/booted-system /nix/var/nix/gcroots/booted-system
NIXOS_ACTION=boot "$systemConfig/activate" "$systemConfig"
systemctl daemon-reload
[ "${1:-}" = no-start ] || systemctl start --no-block multi-user.target default.target
