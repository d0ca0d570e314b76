# Waits, in a unit that was started before the switch, for a fresh login to
# confirm it, and else switches back: what runs after this is run.sh with the old
# system. What is set in front of this by the deployer: dir, name, confirm.
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:${PATH:-/usr/bin:/bin}
# Counted from the end of the activation, however long that takes.
while [ ! -e "$dir/test.result" ]; do
    [ -e "$dir/decided" ] && exit 0
    sleep 0.5
done
left=$((confirm * 2))
while [ $left -gt 0 ]; do
    [ -e "$dir/decided" ] && exit 0
    sleep 0.5
    left=$((left - 1))
done
# Whoever makes this folder decides; the other sees it.
mkdir "$dir/decided" 2>/dev/null || exit 0
: >"$dir/decided/back"
echo "deploy-ssh: no fresh login has confirmed the new system within $confirm s, so the old one is switched to"
