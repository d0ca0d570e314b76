# Runs switch-to-configuration inside the transient unit, trying again while
# its lock is held. What is set in front of this by the deployer: dir, name,
# action, toplevel, attempts, interval, no_check, fresh, and the functions of
# package facts.
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/run/wrappers/bin:${PATH:-/usr/bin:/bin}
export PATH
unset __NIXOS_SWITCH_TO_CONFIGURATION_PARENT_EXE
NIXOS_INSTALL_BOOTLOADER=0
export NIXOS_INSTALL_BOOTLOADER
[ "$no_check" = 1 ] && NIXOS_NO_CHECK=1 && export NIXOS_NO_CHECK
base=/run/deploy-ssh
log=$dir/$name.log

# The lock of deploy-ssh itself keeps two deploys from taking turns with each
# other's tries. It is held by this unit, so no connection that is lost frees
# it, and by this process alone: what the switch starts does not inherit it.
ours() {
    command -v flock >/dev/null || return 0
    flock -n 9
    # Only 1 means held: mksh hands no descriptor on, and then there is just no such lock.
    [ $? = 1 ] && return 1
    printf '%s\n' "${dir##*/} $name $toplevel" >$base/holder
}

# baseline: notes what runs and which units have failed before an activation. An
# earlier note stays unless $fresh is 1: it is of a host before an activation that has
# not ended well, and what that made fail must not pass for an old failure, whatever
# is switched to next.
baseline() {
    [ "$fresh" != 1 ] && [ -e $base/failed-before ] && return 0
    if ! units=$(failed_units); then
        printf 'Error: the failed units could not be listed: %s\n' "$units"
        return 1
    fi
    printf '%s %s\n%s\n' "$toplevel" "$(readlink -f /run/current-system)" "$units" >$base/failed-before.new &&
        mv $base/failed-before.new $base/failed-before
}

holder() {
    lock_holder && return 0
    ours && return 1
    printf 'deploy-ssh run %s\n' "$(cat $base/holder 2>/dev/null)"
}

# said_since BYTE TEXT: whether a line of the log since then begins with TEXT.
said_since() { tail -c "+$(($1 + 1))" "$log" | grep -q "^$2"; }

try=0
moved=no users=no
exec 9>>$base/lock
while :; do
    try=$((try + 1))
    printf '%s\n' $try >"$dir/$name.tries"
    if who=$(holder); then
        :
    else
        rm -f "$dir/$name.locked"
        case $name in
        test) baseline || exit 77 ;;
        boot)
            # Another deploy may have had its turn since the profile was set.
            if [ "$(readlink -f /nix/var/nix/profiles/system)" != "$toplevel" ]; then
                echo 'Error: another deploy has set the system profile meanwhile'
                exit 76
            fi
            ;;
        esac
        before=$(stat -c %s "$log")
        "$toplevel/bin/switch-to-configuration" "$action" 9>&-
        status=$?
        [ $status = 0 ] && exit 0
        # A unit that an earlier, interrupted switch was to reload and that this
        # system doesn't have ends every switch, until the list is gone.
        if [ $moved = no ] && [ -s /run/nixos/reload-list ] && said_since "$before" 'Error: Failed to get unit '; then
            moved=yes
            printf 'deploy-ssh: moved /run/nixos/reload-list aside, which an interrupted switch left and which names: %s\n' "$(tr '\n' ' ' </run/nixos/reload-list)"
            mv /run/nixos/reload-list "$dir/reload-list" && continue
        fi
        # A user whose last session has just ended is listed for some seconds while
        # his manager is gone already, and then his activation fails. Once more, later.
        if [ $status = 4 ] && [ $users = no ] && said_since "$before" 'warning: user activation for ' &&
            ! said_since "$before" 'warning: the following units failed: ' && ! said_since "$before" 'Failed to '; then
            users=yes
            echo 'deploy-ssh: only the activation of a user failed, as for one who has just logged out; trying once more in 12 s'
            sleep 12 9>&- && continue
        fi
        # By its text, not by the exit code: 11 has another meaning too.
        said_since "$before" 'Could not acquire lock' || exit $status
        who=$(holder || lock_heir) || who=
    fi
    # Written while it waits, so that a limit which ends the wait finds it.
    printf '%s\n' "$who" >"$dir/$name.locked"
    [ $try -ge "$attempts" ] && exit 75
    [ $try = 1 ] && printf 'deploy-ssh: waiting for the lock of switch-to-configuration, held by %s\n' "${who:-a process that has just ended}"
    sleep "$interval" 9>&-
done
