#!/bin/sh
# Run the init of the toplevel that the boot loader would have started: the one
# named in the default entry under /boot. No default entry: a plain Debian boot.
boot=${1:-/boot}
entry=
if [ -f "$boot/loader/loader.conf" ]; then
  # A pattern (loader.conf(5)): the newest version starts, but for those without tries left.
  default=$(sed -n 's/^default[ \t]*//p' "$boot/loader/loader.conf" | tail -n 1)
  file=$(ls -d "$boot/loader/entries/"${default:-none} 2>/dev/null | grep -v '+0[-.]' | sort -V | tail -n 1)
  [ -z "$file" ] || entry=$(cat "$file")
elif [ -f "$boot/grub/grub.cfg" ]; then
  entry=$(grep -m 1 'init=' "$boot/grub/grub.cfg")
elif [ -f "$boot/extlinux/extlinux.conf" ]; then
  entry=$(sed -n '/^LABEL nixos-default$/,/APPEND/p' "$boot/extlinux/extlinux.conf")
fi
init=$(printf '%s\n' "$entry" | sed -n 's/.*[ \t]init=\([^ \t]*\).*/\1/p' | head -n 1)
if [ -z "$init" ]; then
  echo "no default boot entry under $boot"
  exit 0
fi
exec "$init"
