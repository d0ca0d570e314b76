# Runs switch-to-configuration inside the transient unit, trying again while
# its lock is held. The first lines, which set dir, action, toplevel, attempts
# and interval, are put in front of this by the deployer.
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/run/wrappers/bin:${PATH:-/usr/bin:/bin}
export PATH
unset __NIXOS_SWITCH_TO_CONFIGURATION_PARENT_EXE
NIXOS_INSTALL_BOOTLOADER=0
export NIXOS_INSTALL_BOOTLOADER
lock=/run/nixos/switch-to-configuration.lock

# holder: who holds the lock, as "pid N (command)"; fails when nobody does.
# /proc/locks is read instead of trying the lock: a try would itself be in the
# way of a switch that starts at this moment, and old versions of
# switch-to-configuration wait for the lock in silence, so it is asked before.
holder() {
    [ -e "$lock" ] || return 1
    set -- $(stat -c '%D %i' "$lock") && dev=$((0x$1))
    id=$(printf '%02x:%02x:%d' $((dev >> 8 & 0xfff)) $((dev & 0xff | dev >> 12 & 0xfff00)) "$2")
    while read -r number kind mode access pid where rest; do
        [ "$kind $where" = "FLOCK $id" ] || continue
        command=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)
        printf 'pid %s (%s)\n' "$pid" "${command:-ended, but something inherited its lock}"
        return 0
    done </proc/locks
    return 1
}

try=0
while :; do
    try=$((try + 1))
    printf '%s\n' $try >"$dir/$action.tries"
    if who=$(holder); then
        :
    else
        before=$(stat -c %s "$dir/$action.log")
        "$toplevel/bin/switch-to-configuration" "$action"
        status=$?
        [ $status = 0 ] && exit 0
        # By its text, not by the exit code: 11 has another meaning too.
        tail -c "+$((before + 1))" "$dir/$action.log" | grep -q '^Could not acquire lock' || exit $status
        who=$(holder) || who=
    fi
    if [ $try -ge "$attempts" ]; then
        printf '%s\n' "$who" >"$dir/$action.locked"
        exit 75
    fi
    [ $try = 1 ] && printf 'deploy-ssh: waiting for the lock of switch-to-configuration, held by %s\n' "${who:-a process that has just ended}"
    sleep "$interval"
done
