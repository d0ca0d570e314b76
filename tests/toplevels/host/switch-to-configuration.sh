#!/bin/bash
# Stands for NixOS's switch-to-configuration: same arguments, environment, order
# of steps, lock, list files, texts, streams and exit codes, on a host whose
# other files are Debian's. It is a model to test deployments against, made from
# observed behaviour; what it leaves out is listed in ../README.md.
#
# Environment, set by the toplevel's wrapper: OUT, TOPLEVEL, DISTRO_ID,
# INSTALL_BOOTLOADER, PRE_SWITCH_CHECK, SYSTEMD, and GENERATION, which chooses
# between the program of today ("rust") and its Perl forerunners ("perl",
# "perl-blocking-lock", "perl-no-lock").

export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
GENERATION=${GENERATION:-rust}
LISTS=/run/nixos
UNITS=/etc/systemd/system
REACTIVATION=sysinit-reactivation.target
exit_code=0
work=

# A program whose stderr is closed writes into nothing and goes on; one whose
# stderr has lost its reader dies of it (Rust) or goes on (Perl).
[ -L /proc/$$/fd/1 ] || exec >/dev/null
[ -L /proc/$$/fd/2 ] || exec 2>/dev/null
case $GENERATION in
rust) trap ':' PIPE ;; # a trapped signal is back to its default in children
*) trap '' PIPE ;;
esac

say() {
  printf '%s\n' "$*" >&2 && return
  [ "$GENERATION" != rust ] || quit 101
}

quit() {
  [ -z "$work" ] || rm -rf "$work"
  exit "$1"
}

# fail CONTEXT CAUSE: an error that ends the run, as anyhow prints it.
fail() {
  say "Error: $1"
  if [ -n "${2:-}" ]; then
    say ""
    say "Caused by:"
    say "    $2"
  fi
  quit 1
}

log() { logger -t nixos -p "user.$1" -- "$2" 2>/dev/null; }

usage() {
  say "Usage: $0 [check|switch|boot|test|dry-activate]
check:        run pre-switch checks and exit
switch:       make the configuration the boot default and activate now
boot:         make the configuration the boot default
test:         activate the configuration, but don't make it the boot default
dry-activate: show what would be done if this configuration were activated
"
  quit 1
}

# --- the lock -----------------------------------------------------------------

# Children must not inherit the lock: every child that can outlive this process
# is started with {lock}>&-.
take_lock() {
  if [ "$GENERATION" = perl-no-lock ]; then
    exec {lock}</dev/null
    return
  fi
  if ! { exec {lock}>>"$LISTS/switch-to-configuration.lock"; } 2>/dev/null; then
    say "Could not open lock"
    quit 1
  fi
  case $GENERATION in
  rust) flock -n "$lock" || { say "Could not acquire lock"; quit 11; } ;;
  perl) flock -n "$lock" ||
    { say "Could not acquire lock - Resource temporarily unavailable at $0 line 98."; quit 11; } ;;
  perl-blocking-lock) flock "$lock" ;;
  esac
}

# --- the bus --------------------------------------------------------------------

MANAGER=(org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager)

# bus SECONDS SERVICE PATH INTERFACE METHOD ...: one call on the system bus; the
# reply in $reply, or its error. A bus that doesn't answer is no error before
# the connection stands (the real program waits for it without limit).
bus() {
  local seconds=$1
  shift
  reply=$(busctl --system --timeout="$seconds" call "$@" 2>&1 {lock}>&-)
}

# connect_bus: open a connection and keep it to the end, in a child that dies
# with this process, so that a lost bus is noticed where the real one would.
connect_bus() {
  until bus 20 "${MANAGER[@]}" Subscribe; do
    case $reply in
    *"timed out"*) ;;
    *)
      [ "$GENERATION" = rust ] || { say "$reply"; quit 255; }
      # busctl's words, in the form of libdbus
      fail "Failed to open dbus connection" \
        "Failed to connect to socket /run/dbus/system_bus_socket: ${reply##*: }"
      ;;
    esac
  done
  setpriv --pdeathsig KILL busctl --system monitor --match="type='signal',path='/none'" \
    >/dev/null 2>&1 </dev/null {lock}>&- &
  connection=$!
}

connected() { kill -0 "$connection" 2>/dev/null; }

disconnect() {
  kill "$connection"
  wait "$connection"
} 2>/dev/null

# --- unit files -------------------------------------------------------------------

# unit_file DIR UNIT: the file that defines UNIT in DIR (its template's when it
# is an instance); empty when there is none or it is masked.
unit_file() {
  local file=$1/$2 base=${2%%@*} kind=${2##*.}
  [ -e "$file" ] || [ "$base" = "$2" ] || file=$1/$base@.$kind
  if [ -e "$file" ] && [ "$(readlink -f "$file")" != /dev/null ]; then
    echo "$file"
  fi
}

# unit_text DIR UNIT: its settings, one "[Section] Key=Value" a line, with those
# left out that need no restart when they change.
unit_text() {
  local file
  file=$(unit_file "$1" "$2")
  [ -n "$file" ] || return 0
  cat "$file" "$1/$2.d"/*.conf 2>/dev/null | awk '
    /^[[:space:]]*([#;]|$)/ { next }
    /^\[/ { section = $0; next }
    section == "[Install]" { next }
    section == "[Unit]" && /^(Description|Documentation|OnFailure|OnSuccess|OnFailureJobMode|IgnoreOnIsolate|StopWhenUnneeded|RefuseManualStart|RefuseManualStop|AllowIsolate|CollectMode|SourcePath)[[:space:]]*=/ { next }
    { print section " " $0 }'
}

# unit_flag DIR UNIT SECTION KEY DEFAULT: a boolean setting, true or false.
unit_flag() {
  local file value
  file=$(unit_file "$1" "$2")
  value=$([ -z "$file" ] || cat "$file" "$1/$2.d"/*.conf 2>/dev/null |
    awk -v want="[$3]" -v key="$4" -F= '
      /^\[/ { section = $0; next }
      section == want { name = $1; gsub(/[[:space:]]/, "", name); if (name == key) { v = $2; gsub(/[[:space:]]/, "", v) } }
      END { print v }')
  case $value in
  1 | yes | true | on) return 0 ;;
  "") [ "$5" = true ] ;;
  *) return 1 ;;
  esac
}

# --- the plan ------------------------------------------------------------------------

declare -A state fragment stop start restart reload skip hidden

# read_units ARRAY: the state of every unit that is not inactive.
read_units() {
  local -n states=$1
  local line id= active= sub= path= following= status=
  states=()
  while IFS= read -r line; do
    case $line in
    Id=*) id=${line#*=} ;;
    ActiveState=*) active=${line#*=} ;;
    SubState=*) sub=${line#*=} ;;
    FragmentPath=*) path=${line#*=} ;;
    Following=*) following=${line#*=} ;;
    ExecMainStatus=*) status=${line#*=} ;;
    "")
      if [ -n "$id" ] && [ -z "$following" ] && [ "$active" != inactive ]; then
        states[$id]="$active $sub ${status:-0}"
        fragment[$id]=$path
      fi
      id= active= sub= path= following= status=
      ;;
    esac
  done < <(systemctl show --all -p Id,ActiveState,SubState,FragmentPath,Following,ExecMainStatus '*'; echo)
}

record() { [ "$action" = dry-activate ] || echo "$2" >>"$LISTS/$1-list"; }

unrecord() {
  local left
  [ "$action" != dry-activate ] && [ -e "$LISTS/$1-list" ] || return 0
  left=$(grep -vxF -- "$2" "$LISTS/$1-list")
  printf '%s' "${left:+$left$'\n'}" >"$LISTS/$1-list"
}

read_list() { # NAME ARRAY
  local -n units=$2
  local unit
  [ ! -e "$LISTS/$1-list" ] || while IFS= read -r unit; do
    [ -z "$unit" ] || units[$unit]=1
  done <"$LISTS/$1-list"
}

plan_changed() { # UNIT: active before, different now
  local unit=$1 socket socket_activated=
  case $unit in
  sysinit.target | basic.target | multi-user.target | graphical.target | *.slice | *.path | *.socket) return ;;
  *.mount)
    restart[$unit]=1
    record restart "$unit"
    return
    ;;
  esac
  if unit_flag "$new" "$unit" Service X-ReloadIfChanged false; then
    if [ -z "${restart[$unit]:-}${stop[$unit]:-}" ]; then
      reload[$unit]=1
      record reload "$unit"
    fi
  elif ! unit_flag "$new" "$unit" Service X-RestartIfChanged true ||
    unit_flag "$new" "$unit" Unit RefuseManualStop false ||
    unit_flag "$new" "$unit" Unit X-OnlyManualStart false; then
    skip[$unit]=1
  elif ! unit_flag "$new" "$unit" Service X-StopIfChanged true; then
    restart[$unit]=1
    record restart "$unit"
    unset "reload[$unit]"
    unrecord reload "$unit"
  else
    socket=${unit%.*}.socket
    if [ "${unit##*.}" = service ] && [ "${state[$socket]%% *}" = active ] && [ -e "$new/$socket" ]; then
      socket_activated=1
      stop[$socket]=1
      start[$socket]=1
      record start "$socket"
    fi
    if [ -z "$socket_activated" ]; then
      start[$unit]=1
      record start "$unit"
    fi
    stop[$unit]=1
    unset "reload[$unit]"
    unrecord reload "$unit"
  fi
}

plan() {
  local unit old_text new_text
  read_list start start
  read_list restart restart
  read_list reload reload
  for unit in "${!state[@]}"; do
    [[ ${fragment[$unit]} == $UNITS/* ]] || continue
    [[ ${state[$unit]} == active\ * || ${state[$unit]} == activating\ * ]] || continue
    [ -n "$(unit_file "$UNITS" "$unit")" ] || continue
    if [ -z "$(unit_file "$new" "$unit")" ]; then
      if unit_flag "$UNITS" "$unit" Unit X-StopOnRemoval true; then stop[$unit]=1; fi
    elif [[ $unit == *.target ]]; then
      if ! unit_flag "$new" "$unit" Unit RefuseManualStart false &&
        ! unit_flag "$new" "$unit" Unit X-OnlyManualStart false; then
        start[$unit]=1
        record start "$unit"
        [ "${STC_DISPLAY_ALL_UNITS:-}" = 1 ] || hidden[$unit]=1
      fi
      if unit_flag "$new" "$unit" Unit X-StopOnReconfiguration false; then stop[$unit]=1; fi
    else
      old_text=$(unit_text "$UNITS" "$unit")
      new_text=$(unit_text "$new" "$unit")
      if [ "$old_text" = "$new_text" ]; then
        continue
      elif [ "$(grep -v '^\[Unit\] X-Reload-Triggers=' <<<"$old_text")" = "$(grep -v '^\[Unit\] X-Reload-Triggers=' <<<"$new_text")" ]; then
        if [ -z "${restart[$unit]:-}" ]; then
          reload[$unit]=1
          record reload "$unit"
        fi
      else
        plan_changed "$unit"
      fi
    fi
  done
}

# sorted ARRAY: its keys, without the hidden, by name; in $shown, ", "-joined.
sorted() {
  local -n units=$1
  local unit visible=()
  for unit in "${!units[@]}"; do
    [ "$1" != reload ] && [ "$1" != restart ] && [ "$1" != skip ] && [ -n "${hidden[$unit]:-}" ] || visible+=("$unit")
  done
  shown=
  [ ${#visible[@]} -gt 0 ] || return 1
  shown=$(printf '%s\n' "${visible[@]}" | sort -f | paste -sd, | sed 's/,/, /g')
}

tell() { # TEXT ARRAY
  if sorted "$2"; then say "$1: $shown"; fi
}

# --- jobs -----------------------------------------------------------------------------

declare -A job_unit job_verb finished
jobs_submitted=0

submit() { # VERB UNIT
  setpriv --pdeathsig KILL systemctl --no-ask-password --quiet "$1" -- "$2" \
    >"$work/job.$jobs_submitted" 2>&1 </dev/null {lock}>&- &
  job_unit[$!]=$2 job_verb[$!]=$1 job_log[$!]=$work/job.$jobs_submitted
  jobs_submitted=$((jobs_submitted + 1))
}
declare -A job_log

# block_on_jobs waits without limit: so does the real one.
block_on_jobs() {
  local pid text verb unit
  while [ ${#job_unit[@]} -gt 0 ]; do
    for pid in "${!job_unit[@]}"; do
      ! kill -0 "$pid" 2>/dev/null || continue
      if ! wait "$pid"; then
        text=$(<"${job_log[$pid]}") verb=${job_verb[$pid]} unit=${job_unit[$pid]}
        case $text in
        "Failed to $verb $unit: "*) # refused
          if [ "$verb" != stop ]; then
            say "${text%%$'\n'*}"
            exit_code=4
          fi
          ;;
        *cancel*) ;;
        *) finished[$unit]=$verb ;;
        esac
      fi
      unset "job_unit[$pid]"
    done
    [ ${#job_unit[@]} -gt 0 ] || break
    connected || fail "Failed to process dbus messages while waiting for jobs"
    read -rt 0.05 -u "$idle" # nothing ever comes
  done
}

# --- users ----------------------------------------------------------------------------

# user_manager UID GID VERB: a request to the user's own systemd, made by a
# process of the user.
user_manager() {
  setpriv --reuid "$1" --regid "$2" --clear-groups \
    env -i PATH="$PATH" XDG_RUNTIME_DIR="/run/user/$1" \
    timeout 25 systemctl --user "$3" >/dev/null 2>&1 {lock}>&-
}

switch_users() {
  local uid name gid
  if ! bus 25 org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager ListUsers; then
    say "Unable to list users with logind: ${reply#Call failed: }"
    if [ "$GENERATION" = rust ]; then quit 11; else quit 1; fi
  fi
  # a(uso) 2 0 "root" "/org/..." 1000 "ann" "/org/..."
  while read -r uid name; do
    say "reloading user units for $name..."
    gid=$(id -g "$uid")
    if ! user_manager "$uid" "$gid" reset-failed; then
      say "Error: Failed to open dbus connection"
      say "warning: user activation for $name failed"
      exit_code=4
      continue
    fi
    user_manager "$uid" "$gid" daemon-reload
  done < <(grep -oE '[0-9]+ "[^"]*" "/org[^"]*"' <<<"$reply" | sed -E 's/^([0-9]+) "([^"]*)".*/\1 \2/')
}

# --- the end ----------------------------------------------------------------------------

# settle: wait until the units have kept still for a quarter of a second.
settle() {
  local -A before
  local before_text after_text tries=0
  read_units after
  after_text=$(declare -p after)
  while [ $tries -lt 360 ]; do
    before_text=$after_text
    sleep 0.25
    read_units after
    after_text=$(declare -p after)
    [ "$before_text" != "$after_text" ] || break
    tries=$((tries + 1))
  done
}

report_units() {
  local unit status
  local -A failed=() fresh=() nothing=()
  for unit in "${!after[@]}"; do
    status=${after[$unit]}
    case $status in
    failed\ *) failed[$unit]=1 ;;
    *\ auto-restart\ 0) ;;
    *\ auto-restart\ *) failed[$unit]=1 ;;
    *) [[ -n ${state[$unit]:-} || $unit == *.scope ]] || fresh[$unit]=1 ;;
    esac
  done
  hidden=()
  tell "the following new units were started" fresh
  if sorted failed; then
    say "warning: the following units failed: $shown"
    # the real one gives this to stdout (Rust) or stderr (Perl)
    if [ "$GENERATION" = rust ]; then
      "$SYSTEMD/bin/systemctl" status --no-pager --full ${shown//,/}
    else
      "$SYSTEMD/bin/systemctl" status --no-pager --full ${shown//,/} >&2
    fi
    exit_code=4
  fi
}

# --- the run -----------------------------------------------------------------------------

action=${1:-}
case $action in
check | switch | boot | test | dry-activate) ;;
*) usage ;;
esac
if [ "$(id -u)" != 0 ]; then
  say "Error: switch-to-configuration must be run as the root user"
  quit 1
fi
for variable in OUT TOPLEVEL DISTRO_ID PRE_SWITCH_CHECK INSTALL_BOOTLOADER SYSTEMD; do
  [ -n "${!variable:-}" ] || fail "missing required environment variable $variable"
done
export NIXOS_ACTION=$action
new=$TOPLEVEL/etc/systemd/system

if [ ! -f /etc/NIXOS ] && ! grep -qE "^ID=\"?$DISTRO_ID\"?$" /etc/os-release; then
  say "This is not a NixOS installation!"
  quit 2
fi
mkdir -p "$LISTS" && chmod 0755 "$LISTS" || fail "Failed to create /run/nixos directory"
take_lock

if [ "${NIXOS_NO_CHECK:-}" != 1 ] && ! "$PRE_SWITCH_CHECK" "$TOPLEVEL" "$action" {lock}>&-; then
  say "Pre-switch checks failed"
  quit 1
fi
[ "$action" != check ] || quit 0

if [ "$action" = switch ] || [ "$action" = boot ]; then
  if ! "$INSTALL_BOOTLOADER" "$TOPLEVEL" {lock}>&-; then
    say "Failed to install bootloader"
    quit 1
  fi
fi
[ "${NIXOS_NO_SYNC:-}" = 1 ] || sync -f /nix/store || fail "Failed to sync /nix/store"
[ "$action" != boot ] || quit 0

if [ "$(cat /run/current-system/init-interface-version 2>/dev/null)" != "$(cat "$TOPLEVEL/init-interface-version")" ]; then
  say "Warning: the new NixOS configuration has an ‘init’ that is
incompatible with the current configuration.  The new configuration
won't take effect until you reboot the system.
"
  quit 100
fi

connect_bus
work=$(mktemp -d /run/switch-to-configuration.XXXXXX) || fail "Failed to create a work directory"
mkfifo "$work/idle" && exec {idle}<>"$work/idle" || fail "Failed to create a work directory"
declare -A after
read_units state
plan

restart_systemd=
if [ "$(readlink -f /proc/1/exe)" != "$(readlink -f "$SYSTEMD/lib/systemd/systemd")" ]; then
  restart_systemd=1
elif [ -e "$TOPLEVEL/etc/systemd/system.conf" ] &&
  [ "$(readlink -f /etc/systemd/system.conf)" != "$(readlink -f "$TOPLEVEL/etc/systemd/system.conf")" ]; then
  restart_systemd=1 # Debian's own file is not compared
fi

if [ "$action" = dry-activate ]; then
  tell "would stop the following units" stop
  tell "would NOT stop the following changed units" skip
  say "would activate the configuration..."
  [ ! -e "$OUT/dry-activate" ] || "$OUT/dry-activate" "$OUT" {lock}>&-
  [ -z "$restart_systemd" ] || say "would restart systemd"
  tell "would reload the following units" reload
  tell "would restart the following units" restart
  tell "would start the following units" start
  disconnect
  quit 0
fi

log info "switching to system configuration $TOPLEVEL"

tell "stopping the following units" stop
for unit in "${!stop[@]}"; do submit stop "$unit"; done
block_on_jobs
tell "NOT restarting the following changed units" skip

say "activating the configuration..."
if [ -e "$OUT/activate" ] && ! "$OUT/activate" "$OUT" {lock}>&-; then
  say "Failed to run activate script"
  exit_code=2
fi

if [ -n "$restart_systemd" ]; then
  say "restarting systemd..."
  bus 25 "${MANAGER[@]}" Reexecute
  deadline=$((SECONDS + 180))
  until bus 5 "${MANAGER[@]}" Subscribe; do
    [ $SECONDS -lt $deadline ] || fail "systemd daemon reexecute failed, timeout after 180s"
    sleep 0.1
  done
fi

bus 25 "${MANAGER[@]}" ResetFailed || fail "Failed to reset failed units" "$reply"
bus 180 "${MANAGER[@]}" Reload || fail "systemd daemon reload failed, timeout after 180s"
switch_users

say "restarting $REACTIVATION"
submit restart "$REACTIVATION"
block_on_jobs

for unit in "${!reload[@]}"; do
  if [ "$(systemctl show -p LoadState --value -- "$unit")" != loaded ]; then
    fail "Failed to get unit $unit" "Unit $unit not loaded."
  fi
  case $(systemctl show -p ActiveState --value -- "$unit") in
  active | activating) ;;
  *)
    if ! unit_flag "$new" "$unit" Unit RefuseManualStart false; then
      start[$unit]=1
      record start "$unit"
    fi
    unset "reload[$unit]"
    unrecord reload "$unit"
    ;;
  esac
done
if [ ${#reload[@]} -gt 0 ]; then
  tell "reloading the following units" reload
  for unit in "${!reload[@]}"; do submit reload "$unit"; done
  block_on_jobs
  rm -f "$LISTS/reload-list"
fi
if [ ${#restart[@]} -gt 0 ]; then
  tell "restarting the following units" restart
  for unit in "${!restart[@]}"; do submit restart "$unit"; done
  block_on_jobs
  rm -f "$LISTS/restart-list"
fi
tell "starting the following units" start
for unit in "${!start[@]}"; do submit start "$unit"; done
block_on_jobs
rm -f "$LISTS/start-list"

for unit in "${!finished[@]}"; do
  say "Failed to ${finished[$unit]} $unit"
  exit_code=4
done
disconnect
settle
report_units

if [ $exit_code = 0 ]; then
  log info "finished switching to system configuration $TOPLEVEL"
else
  log err "switching to system configuration $TOPLEVEL failed (status $exit_code)"
fi
quit $exit_code
