# The toplevel itself, from its parts: see ../toplevel.nix.
if [ -n "$buildFault" ]; then
  echo "building the toplevel of $label: failing, as asked for"
  exit 1
fi
mkdir "$out" "$out/bin" "$out/activation"
ln -s "$etc/etc" "$out/etc"
ln -s "$sw" "$out/sw"
ln -s "$systemd" "$out/systemd"
printf '%s' "$interface" >"$out/init-interface-version"
printf '%s' "$label" >"$out/nixos-version"
printf '%s' "$claimedSystem" >"$out/system"
printf '%s\n' "$dependencies" >"$out/extra-dependencies"
[ -z "$inhibitors" ] || printf '%s\n' "$inhibitors" >"$out/switch-inhibitors"
if [ -n "$kernel" ]; then
  ln -s "$kernel/bzImage" "$out/kernel"
  ln -s "$kernel" "$out/kernel-modules"
  ln -s "$initrd/initrd" "$out/initrd"
  printf '%s' "$kernelParams" >"$out/kernel-params"
  mkdir "$out/firmware"
  printf '#!/bin/sh\n' >"$out/append-initrd-secrets"
  chmod +x "$out/append-initrd-secrets"
  printf '%s\n' "$bootJson" | sed "s|@out@|$out|g" >"$out/boot.json"
fi
cp "$initFile" "$out/init"
[ -z "$activateFile" ] || cp "$activateFile" "$out/activate"
cp "$dryActivateFile" "$out/dry-activate"
cp "$beforePath" "$out/activation/before"
cp "$afterPath" "$out/activation/after"
cp "$switchFile" "$out/bin/.switch-to-configuration-wrapped"
cat >"$out/bin/switch-to-configuration" <<END
#!/bin/bash -e
export OUT='$out'
export TOPLEVEL='$out'
export DISTRO_ID='nixos'
export INSTALL_BOOTLOADER='$installBootLoader'
export PRE_SWITCH_CHECK='$preSwitchCheck'
export SYSTEMD='$systemd'
export GENERATION='$generation'
exec -a "\$0" '$out/bin/.switch-to-configuration-wrapped' "\$@"
END
chmod +x "$out/init" "$out/dry-activate" "$out"/bin/* "$out/bin/.switch-to-configuration-wrapped"
[ ! -e "$out/activate" ] || chmod +x "$out/activate"
