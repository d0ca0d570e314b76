# Waits, in a unit that was started before the switch, for a fresh login to
# confirm it, and else switches back: what runs after this is run.sh with the old
# system. What is set in front of this by the deployer: dir, name, toplevel (the old
# system), undone (the new one), test_unit, confirm.
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:${PATH:-/usr/bin:/bin}
# Counted from the end of the activation, however long that takes. One that is over
# without a result counts as ended: three looks apart.
absent=0
while [ ! -e "$dir/test.result" ] && [ $absent -lt 3 ]; do
    [ -L "$dir/decided" ] && exit 0
    case $(timeout 10 systemctl show -P ActiveState "$test_unit" 2>/dev/null) in
    inactive | failed) absent=$((absent + 1)) ;;
    *) absent=0 ;;
    esac
    sleep 2
done
left=$((confirm * 2))
while [ $left -gt 0 ]; do
    [ -L "$dir/decided" ] && exit 0
    sleep 0.5
    left=$((left - 1))
done
# The link is made with its answer in one step: whoever makes it decides.
ln -s back "$dir/decided" 2>/dev/null
[ "$(readlink "$dir/decided")" = back ] || exit 0
# What somebody else has switched to meanwhile is his.
case $(readlink -f /run/current-system) in
"$undone" | "$toplevel") ;;
*)
    echo 'deploy-ssh: another system runs by now, so there is no way back from here'
    exit 0
    ;;
esac
echo "deploy-ssh: no fresh login has confirmed the new system within $confirm s, so the old one is switched to"
