# attended COMMAND ARG... runs a command and ends it when nobody waits for it any more:
# the deployer sends a line now and then, and when none has come for $patience seconds,
# or the line was cut, it is gone. A command that lived on would hold its locks against
# the deployer that comes back. POSIX sh, and coreutils' timeout.
attended() {
    "$@" 3<&- &
    attended=$!
    (
        trap 'kill $reader 2>/dev/null; exit' TERM
        while
            timeout $patience sh -c 'read -r sign' <&3 &
            reader=$!
            wait $reader
        do :; done
        kill $attended
        sleep 5 &
        reader=$!
        wait $reader
        kill -KILL $attended
    ) >/dev/null 2>&1 &
    watching=$!
    wait $attended
    set -- $?
    kill $watching 2>/dev/null
    # One that was ended before it had its trap is told of by the shell, as if by the command.
    wait $watching 2>/dev/null
    return $1
}
