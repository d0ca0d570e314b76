lock=/run/nixos/switch-to-configuration.lock

# lock_holder: who holds the lock of switch-to-configuration, as "pid N (command),
# since TIME"; fails when nobody does.
#
# /proc/locks is read instead of trying the lock: a try would itself be in the
# way of a switch that starts at this moment, and old versions of
# switch-to-configuration wait for the lock in silence, so it is asked before.
lock_holder() {
    [ -e "$lock" ] || return 1
    set -- $(stat -c '%D %i' "$lock") && dev=$((0x$1))
    id=$(printf '%02x:%02x:%d' $((dev >> 8 & 0xfff)) $((dev & 0xff | dev >> 12 & 0xfff00)) "$2")
    while read -r number kind mode access pid where rest; do
        [ "$kind $where" = "FLOCK $id" ] || continue
        if command=$(tr '\0\n\r' '   ' <"/proc/$pid/cmdline" 2>/dev/null) && [ -n "$command" ]; then
            printf 'pid %s (%s), since %s\n' "$pid" "${command% }" "$(stat -c %y "/proc/$pid" | cut -d. -f1)"
            return 0
        fi
        lock_heir || printf 'a process that has ended (pid %s)\n' "$pid"
        return 0
    done </proc/locks
    return 1
}

# lock_heir: which process has the lock's file open, as an heir of one that took
# the lock and has ended. In a container /proc/locks doesn't show such locks.
lock_heir() {
    for fd in /proc/[0-9]*/fd/*; do
        [ "$(readlink "$fd" 2>/dev/null)" = "$lock" ] || continue
        heir=${fd#/proc/} heir=${heir%%/*}
        command=$(tr '\0\n\r' '   ' <"/proc/$heir/cmdline" 2>/dev/null)
        printf 'pid %s (%s), which inherited it from a process that has ended\n' "$heir" "${command% }"
        return 0
    done
    return 1
}
