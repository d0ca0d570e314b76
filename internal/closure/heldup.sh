# Says which process of this host holds a lock of the store that another one waits for.
# POSIX sh. In /proc/locks the waiting (->) stand below the one who has it.
while read -r number kind rest; do
    if [ "$kind" != '->' ]; then
        set -- $rest
        holder=$3
        continue
    fi
    [ -n "$(find /proc/"$holder"/fd -lname '/nix/store/*.lock' 2>/dev/null | head -n 1)" ] || continue
    printf '%s (process %s)\n' "$(cat /proc/"$holder"/comm)" "$holder"
    break
done </proc/locks
