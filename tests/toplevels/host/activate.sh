#!/bin/bash
# activate TOPLEVEL: make TOPLEVEL's /etc the host's, then /run/current-system
# point to it. Snippets run one after the other; one that fails doesn't stop
# the rest, and the exit status is then 1. Debian's own files in /etc stay,
# unless the toplevel declares one of the same name.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin
systemConfig=${1:?usage: activate TOPLEVEL}
status=0 failed=0
trap 'failed=$? status=1' ERR

relink() { # TARGET LINK: replaced in one step
  ln -sfn "$1" "$2.tmp" && mv -fT "$2.tmp" "$2"
}

# snippet NAME: tell how the commands since the last snippet went.
snippet() {
  [ "$failed" = 0 ] || printf "Activation script snippet '%s' failed (%s)\n" "$1" "$failed"
  failed=0
}

. "$systemConfig/activation/before"

echo "setting up /etc..."
relink "$(readlink -f "$systemConfig/etc")" /etc/static
# Debian's own enabled units stand in a real /etc/systemd/system; NixOS has a
# link there. They move once to where they are found behind the link; all but
# nginx, which only a toplevel may start.
if [ -d /etc/systemd/system ] && [ ! -L /etc/systemd/system ] && [ -d /etc/static/systemd/system ]; then
  cp -a --no-clobber /etc/systemd/system/. /usr/lib/systemd/system/ 2>/dev/null
  rm -f /usr/lib/systemd/system/*.target.wants/nginx.service
  mv /etc/systemd/system /etc/systemd/system.debian
fi
while IFS= read -r name; do
  mkdir -p "$(dirname "/etc/$name")"
  if [ -d "/etc/$name" ] && [ ! -L "/etc/$name" ]; then
    echo "warning: /etc/$name directory contains user files. Symlinking may fail." >&2
    continue
  fi
  [ "$(readlink "/etc/$name")" = "/etc/static/$name" ] || relink "/etc/static/$name" "/etc/$name"
done < <(cd /etc/static/ && find . -mindepth 1 ! -type d -printf '%P\n')
while IFS= read -r link; do
  [ -e "$link" ] || { echo "removing obsolete symlink ‘$link’..." && rm -f "$link"; }
done < <(find /etc -xdev -type l -lname '/etc/static/*')

snippet etc

. "$systemConfig/activation/after"

mkdir -p /nix/var/nix/gcroots
relink "$(readlink -f "$systemConfig")" /run/current-system
relink /run/current-system /nix/var/nix/gcroots/current-system

exit $status
