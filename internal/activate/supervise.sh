# Functions of the supervised switch. POSIX sh, run as root on the host.
# A run has a directory of its own under /run/deploy-ssh, which holds for each
# action (test, boot) its script, its log and, once it has ended, its result.

base=/run/deploy-ssh

# start DIR NAME UNIT LIMIT: starts DIR/NAME.sh as a transient unit.
# Its output goes to a file, never to a pipe or terminal that could die with a
# connection. ExecStopPost records every ending, also one by a signal or by
# RuntimeMaxSec, which no wrapper process would survive. SuccessExitStatus keeps
# our own unit from being counted among the failed ones. See systemd.service(5).
start() {
    dir=$1 name=$2 unit=$3 limit=$4
    statuses=
    i=1
    while [ $i -le 255 ]; do statuses="$statuses $i"; i=$((i + 1)); done
    set -- --quiet --no-ask-password --unit="$unit" --service-type=exec \
        --description="deploy-ssh: switch-to-configuration ($name)" \
        -p "StandardOutput=append:$dir/$name.log" -p "StandardError=append:$dir/$name.log" \
        -p "ExecStopPost=/bin/sh $dir/$name.end" \
        -p "SuccessExitStatus=$statuses SIGHUP SIGINT SIGKILL SIGTERM SIGPIPE SIGABRT SIGSEGV"
    [ "$limit" -gt 0 ] && set -- "$@" -p "RuntimeMaxSec=$limit"
    : >"$dir/$name.log"
    if ! words=$(systemd-run "$@" -- /bin/sh "$dir/$name.sh" 2>&1); then
        said not-scheduled "$words"
        rm -f "$dir/$name.sh"
        return 1
    fi
    say unit "$unit"
}

# said NAME TEXT: like say, for text of several lines.
said() { printf '%s %s\n' "$1" "$(printf '%s' "$2" | tr '\n\r' '  ')"; }

# follow DIR NAME UNIT OFFSET DEADLINE: sends the log from OFFSET on until the
# run has ended, DEADLINE seconds have passed (0: never) or the run is gone.
follow() {
    dir=$1 name=$2 unit=$3 offset=$4 deadline=$5
    log=$dir/$name.log
    began=$(date +%s)
    absent=0 rounds=0 told=$began
    while :; do
        # The result is looked for before the log: what was written by then is sent.
        ended=no
        [ -e "$dir/$name.result" ] && ended=yes
        size=$(stat -c %s "$log" 2>/dev/null) || size=0
        while [ "$offset" -lt "$size" ]; do
            n=$((size - offset))
            [ $n -gt 65536 ] && n=65536
            # Counted before it is announced, so that the announced length is always kept.
            tail -c "+$((offset + 1))" "$log" 2>/dev/null | head -c $n >"$dir/chunk.$$"
            n=$(stat -c %s "$dir/chunk.$$") || break
            [ "$n" -gt 0 ] || break
            say log "$n"
            cat "$dir/chunk.$$"
            offset=$((offset + n))
        done
        rm -f "$dir/chunk.$$"
        if [ $ended = yes ]; then
            say ended yes
            cat "$dir/$name.result"
            [ -e "$dir/$name.jobs" ] && cat "$dir/$name.jobs"
            [ -e "$dir/$name.locked" ] && said locked "$(cat "$dir/$name.locked")"
            [ -e "$dir/$name.tries" ] && say tries "$(cat "$dir/$name.tries")"
            return 0
        fi
        now=$(date +%s)
        if [ "$deadline" -gt 0 ] && [ $((now - began)) -ge "$deadline" ]; then
            say still-running yes
            return 0
        fi
        rounds=$((rounds + 1))
        if [ $((rounds % 20)) = 0 ]; then
            # A line now and then, so that a dead connection is noticed here too.
            say alive yes
            state=$(timeout 10 systemctl show -P ActiveState "$unit" 2>/dev/null)
            case $state in
            inactive | failed) absent=$((absent + 1)) ;;
            *) absent=0 ;;
            esac
            # ExecStopPost may be about to write the result: three looks apart.
            if [ $absent -ge 3 ]; then
                said gone "$(journalctl -q -t nixos -n 1 -o cat 2>/dev/null)"
                return 0
            fi
        fi
        if [ $((now - told)) -ge 30 ]; then
            told=$now
            say waiting $((now - began))
            timeout 10 systemctl list-jobs --plain --no-legend --full 2>/dev/null | while read -r id job type state; do
                [ "$state" = running ] && say job "$type $job"
            done
        fi
        sleep 0.1
    done
}

# set_profile PROFILE GENERATION: makes PROFILE lead to the toplevel: by going to
# a generation that does (0: none is known), else by a new one, unless it does already.
set_profile() {
    if [ "$(readlink -f "$1")" = "$toplevel" ]; then
        return 0
    elif [ "$2" -gt 0 ] && [ "$(readlink -f "$1-$2-link")" = "$toplevel" ]; then
        nix-env -p "$1" --switch-generation "$2"
    else
        nix-env -p "$1" --set "$toplevel"
    fi
}

# baseline: notes which units have failed, unless an earlier activation has
# already brought this toplevel: what it made fail must not pass for an old failure.
baseline() {
    if [ "$(readlink -f /run/current-system)" = "$toplevel" ] && [ -e $base/failed-before ] && { IFS= read -r for_what <$base/failed-before; [ "$for_what" = "$toplevel" ]; }; then
        return 0
    fi
    {
        printf '%s\n' "$toplevel"
        timeout 30 systemctl list-units --state=failed --plain --no-legend --no-pager --full | while read -r unit rest; do printf '%s\n' "$unit"; done
    } >$base/failed-before.new && mv $base/failed-before.new $base/failed-before
}

# tidy RUN: removes the directories of other runs that have ended.
tidy() {
    for other in "$base"/*/; do
        [ -d "$other" ] && [ "$other" != "$base/$1/" ] || continue
        open=no
        for script in "$other"*.sh; do
            [ -e "$script" ] && [ ! -e "${script%.sh}.result" ] && open=yes
        done
        [ $open = no ] && rm -rf "$other"
    done
    rm -f "$base/failed-before"
    return 0
}
