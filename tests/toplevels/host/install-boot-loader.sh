#!/bin/bash
# install-boot-loader TOPLEVEL: write the boot menu under $BOOT (/boot) for
# every generation of the system profile, in the layout of $LOADER:
# systemd-boot (also with boot counting), grub or extlinux. Its wrapper (made with the toplevel) sets
# LOADER and the faults LOADER_FAULT and LOADER_SECONDS.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
default=${1:?usage: install-boot-loader TOPLEVEL}
boot=${BOOT:-/boot}
profile=/nix/var/nix/profiles/system

case ${LOADER_FAULT:-} in
fails)
  echo "install-boot-loader: cannot write to the boot partition" >&2
  exit 1
  ;;
no-entry) exit 0 ;;
slow) sleep "$LOADER_SECONDS" ;;
esac

generations() { # numbers, oldest first
  local link
  for link in "$profile"-*-link; do
    [ -e "$link" ] || continue
    link=${link#"$profile"-}
    echo "${link%-link}"
  done | sort -n
}

options() { # TOPLEVEL: the kernel's command line
  echo "init=$1/init $(cat "$1/kernel-params" 2>/dev/null)"
}

built() { # GENERATION: the day
  date -d "@$(stat -c %Y "$profile-$1-link")" +%F
}

systemd_boot() {
  local n toplevel kernel initrd entry wanted=()
  mkdir -p "$boot/loader/entries" "$boot/EFI/nixos"
  for n in $(generations); do
    toplevel=$(readlink -f "$profile-$n-link")
    kernel=$(readlink -f "$toplevel/kernel") initrd=$(readlink -f "$toplevel/initrd")
    kernel_name=$(echo "${kernel#/nix/store/}" | tr / -).efi
    initrd_name=$(echo "${initrd#/nix/store/}" | tr / -).efi
    [ -e "$boot/EFI/nixos/$kernel_name" ] || cp "$kernel" "$boot/EFI/nixos/$kernel_name"
    [ -e "$boot/EFI/nixos/$initrd_name" ] || cp "$initrd" "$boot/EFI/nixos/$initrd_name"
    cat >"$boot/loader/entries/.tmp" <<END
title NixOS
sort-key nixos
version Generation $n NixOS $(cat "$toplevel/nixos-version"), built on $(built "$n")
linux /EFI/nixos/$kernel_name
initrd /EFI/nixos/$initrd_name
options $(options "$toplevel")
END
    entry=nixos-generation-$n.conf
    # A new entry has three tries; what is left of an old one's is not touched.
    if [ "$LOADER" = systemd-boot-counting ] && [ ! -e "$boot/loader/entries/$entry" ]; then
      entry=$(cd "$boot/loader/entries" && compgen -G "nixos-generation-$n+*.conf" || echo "nixos-generation-$n+3.conf")
    fi
    mv "$boot/loader/entries/.tmp" "$boot/loader/entries/$entry"
    wanted+=("$entry" "$kernel_name" "$initrd_name")
    [ "$toplevel" != "$default" ] || chosen=$n.conf
  done
  # the default moves only to a generation that is in the profile
  if [ -n "${chosen:-}" ]; then
    # With counting the newest generation that has tries left is started, so the
    # default is a pattern (loader.conf(5)).
    [ "$LOADER" = systemd-boot ] || chosen='*'
    (set -C && printf 'timeout 5\ndefault nixos-generation-%s\nconsole-mode keep\n' "$chosen" >"$boot/loader/loader.tmp")
    mv "$boot/loader/loader.tmp" "$boot/loader/loader.conf"
  fi
  for file in "$boot"/loader/entries/nixos-generation-*.conf "$boot"/EFI/nixos/*.efi; do
    [ -e "$file" ] || continue
    [[ " ${wanted[*]:-} " == *" ${file##*/} "* ]] || rm -f "$file"
  done
}

grub() {
  local n toplevel
  mkdir -p "$boot/grub" "$boot/kernels"
  {
    echo 'set default=0'
    echo 'set timeout=5'
    printf 'menuentry "NixOS - Default" {\n  linux %s %s\n}\n' "$(readlink -f "$default/kernel")" "$(options "$default")"
    echo 'submenu "NixOS - All configurations" {'
    for n in $(generations | sort -rn); do
      toplevel=$(readlink -f "$profile-$n-link")
      printf 'menuentry "NixOS - Configuration %s (%s - %s)" {\n  linux %s %s\n}\n' "$n" "$(built "$n")" "$(cat "$toplevel/nixos-version")" "$(readlink -f "$toplevel/kernel")" "$(options "$toplevel")"
    done
    echo '}'
  } >"$boot/grub/grub.cfg.tmp"
  mv "$boot/grub/grub.cfg.tmp" "$boot/grub/grub.cfg"
}

extlinux() {
  local n toplevel
  mkdir -p "$boot/extlinux"
  {
    printf 'DEFAULT nixos-default\n\nLABEL nixos-default\n  LINUX %s\n  APPEND %s\n' "$(readlink -f "$default/kernel")" "$(options "$default")"
    for n in $(generations | sort -rn); do
      toplevel=$(readlink -f "$profile-$n-link")
      printf '\nLABEL nixos-%s-default\n  LINUX %s\n  APPEND %s\n' "$n" "$(readlink -f "$toplevel/kernel")" "$(options "$toplevel")"
    done
  } >"$boot/extlinux/extlinux.conf.tmp"
  mv "$boot/extlinux/extlinux.conf.tmp" "$boot/extlinux/extlinux.conf"
}

case ${LOADER:=systemd-boot} in
systemd-boot | systemd-boot-counting) systemd_boot ;;
grub | extlinux) "$LOADER" ;;
*)
  echo "install-boot-loader: unknown boot loader $LOADER" >&2
  exit 1
  ;;
esac
