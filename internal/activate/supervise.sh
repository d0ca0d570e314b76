# Functions of the supervised switch. POSIX sh, run as root on the host.
# A run has a directory of its own under /run/deploy-ssh, which holds for each
# action (test, boot) its script, its log and, once it has ended, its result.

base=/run/deploy-ssh

# start DIR NAME UNIT LIMIT: starts DIR/NAME.sh as a transient unit.
# Its output goes to a file, never to a pipe or terminal that could die with a
# connection. ExecStopPost records every ending, also one by a signal or by
# RuntimeMaxSec, which no wrapper process would survive. SuccessExitStatus keeps
# our own unit from being counted among the failed ones. See systemd.service(5).
# The page that the result takes on the tmpfs is taken beforehand: one that can't be
# written when all is over would be a lost result.
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
    if ! words=$( (echo >"$dir/$name.result.new") 2>&1); then
        refuse not-scheduled "$words"
        rm -f "$dir/$name.sh"
        return 1
    fi
    if ! words=$(timeout 120 systemd-run "$@" -- /bin/sh "$dir/$name.sh" 2>&1); then
        # The unit may have started all the same, with only the answer lost.
        case $(timeout 10 systemctl show -P ActiveState "$unit" 2>/dev/null) in
        active | activating | deactivating) ;;
        *)
            [ -e "$dir/$name.result" ] && return 0
            refuse not-scheduled "${words:-systemd-run gave no answer within two minutes}"
            rm -f "$dir/$name.sh"
            return 1
            ;;
        esac
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
            # A run that was stopped at its limit is a failed unit, and no concern of the host's.
            timeout 10 systemctl reset-failed "$unit" 2>/dev/null
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
                said gone "$(timeout 10 journalctl -q -t nixos -n 1 -o cat 2>/dev/null)"
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
        timeout 300 nix-env -p "$1" --switch-generation "$2"
    else
        timeout 300 nix-env -p "$1" --set "$toplevel"
    fi
}

# refuse WHAT WORDS: says why the run was not started, and leaves it for a session
# that comes after a lost line.
refuse() { said "$1" "$2" | tee "$dir/$name.refused" 2>/dev/null; }

# root_of ID: the gc root that keeps a run's closure until the profile leads to it.
root_of() { printf '/nix/var/nix/gcroots/deploy-ssh-%s\n' "$1"; }

# sweep_roots: removes the gc roots of runs that left no record, as after a reboot.
sweep_roots() {
    for root in /nix/var/nix/gcroots/deploy-ssh-*; do
        [ -L "$root" ] && [ ! -d "$base/${root##*/deploy-ssh-}" ] && rm -f "$root"
    done
    return 0
}

# tidy RUN TOPLEVEL: removes the directories and gc roots of runs that have ended, all
# but RUN's own directory, and the root that kept TOPLEVEL since its copy: by now the
# profile does.
tidy() {
    copied=/nix/var/nix/gcroots/deploy-ssh-copy
    [ "$(readlink $copied/last)" = "$2" ] && rm -f $copied/last
    # One of a deploy that never came to its end is not kept for ever.
    [ -n "$(find $copied/last -prune -mtime +0 2>/dev/null)" ] && rm -f $copied/last
    for other in "$base"/*/; do
        [ -d "$other" ] || continue
        id=${other%/} id=${id##*/}
        open=no
        for claim in "$other"*.claim "$other"back.sh; do
            [ -e "$claim" ] || continue
            run=${claim##*/} run=${run%.*}
            [ -e "$other$run.result" ] && continue
            case $(timeout 10 systemctl show -P ActiveState "deploy-ssh-$id-$run.service" 2>/dev/null) in
            active | activating | deactivating) open=yes ;;
            # Claimed a moment ago, its unit may be on its way.
            *) [ -n "$(find "$claim" -prune -mmin -10)" ] && open=yes ;;
            esac
        done
        [ $open = yes ] && [ "$id" != "$1" ] && continue
        rm -f "$(root_of "$id")"
        [ "$id" = "$1" ] || rm -rf "$other"
    done
    sweep_roots
}
