# A folder of texts, links and scripts: see default.nix.
mkdir "$out"
printf '%s\n' "$files" | while read -r variable path; do
  [ -n "$variable" ] || continue
  mkdir -p "$(dirname "$out/$path")"
  eval "cp \"\$${variable}Path\" \"\$out/\$path\""
done
printf '%s\n' "$links" | while read -r path target; do
  [ -n "$path" ] || continue
  mkdir -p "$(dirname "$out/$path")"
  case $target in
  @out@/*) target=$out/${target#@out@/} ;;
  esac
  ln -s "$target" "$out/$path"
done
printf '%s\n' "$executable" | while read -r path; do
  [ -n "$path" ] || continue
  chmod +x "$out/$path"
done
