#!/bin/sh
# install-first TOPLEVEL: give a host that runs no toplevel yet its first one.
# TOPLEVEL is valid in the host's store. The profile is set, the boot entry made
# and the toplevel activated and started as at boot: afterwards the host is as
# if it had just booted into it.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
toplevel=$(readlink -f "${1:?usage: install-first TOPLEVEL}")
if [ ! -f "$toplevel/nixos-version" ]; then
  echo "install-first: $toplevel is no toplevel: it has no nixos-version" >&2
  exit 1
fi
nix-env -p /nix/var/nix/profiles/system --set "$toplevel"
NIXOS_NO_CHECK=1 "$toplevel/bin/switch-to-configuration" boot
# Debian's own units of the same names end before the toplevel's take their place.
for unit in "$toplevel"/etc/systemd/system/*.service; do
  systemctl stop "${unit##*/}" 2>/dev/null || true
done
"$toplevel/init" no-start
systemd-tmpfiles --create --remove --exclude-prefix=/dev 2>/dev/null || true
systemctl start multi-user.target default.target
