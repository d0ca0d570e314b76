# The pre-switch check that every toplevel has: $1 toplevel, $2 action. Keys that
# both systems have must have the same value. The files are one-line JSON
# objects of plain strings, made by mkToplevel.
case $2 in
boot | dry-activate)
  echo "Not checking switch inhibitors (action = $2)"
  exit
  ;;
esac

pairs() { # FILE: lines of KEY<tab>VALUE
  [ ! -f "$1" ] || grep -oE '"[^"]*":"[^"]*"' "$1" | sed -E 's/^"([^"]*)":"([^"]*)"$/\1\t\2/'
}

printf "Checking switch inhibitors..."
changes=
while IFS=$'\t' read -r key old; do
  [ -n "$key" ] || continue
  new=$(pairs "$1/switch-inhibitors" | awk -F'\t' -v key="$key" '$1 == key { print $2 }')
  if pairs "$1/switch-inhibitors" | cut -f1 | grep -qxF -- "$key" && [ "$old" != "$new" ]; then
    changes+="$key : $old -> $new"$'\n'
  fi
done < <(pairs /run/current-system/switch-inhibitors)
if [ -z "$changes" ]; then
  echo " done"
  exit
fi
echo
echo "There are changes to critical components of the system:"
echo
echo "$changes"
echo "Switching into this system is not recommended."
echo "You probably want to run 'nixos-rebuild boot' and reboot your system instead."
echo
echo "If you really want to switch into this configuration directly, then"
echo "you can set NIXOS_NO_CHECK=1 to ignore pre-switch checks."
echo
echo "WARNING: doing so might cause the switch to fail or your system to become unstable."
echo
exit 1
