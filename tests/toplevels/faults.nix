# What `faults = { ... }` turns on. README.md tells what each does to a switch.
{ check }:
let
  inherit (builtins) concatStringsSep elem toString;
  oneOf = name: check.oneOf "mkToplevel" "faults.${name}";
  number = name: check.type "mkToplevel" "faults.${name}" [ "int" ];

  fault-service = text: {
    wantedBy = [ "multi-user.target" ];
    text = ''
      [Unit]
      Description=A unit that goes wrong as asked for

      [Service]
      ${text}
    '';
  };

  # faults.unit: what goes wrong with fault.service.
  unitFaults = {
    "fails" = {
      "fault.service" = fault-service "Type=oneshot\nExecStart=/bin/false";
    };
    # dies two seconds after the switch has stopped looking
    "dies-later" = {
      "fault.service" = fault-service "Type=exec\nExecStart=/bin/sh -c 'while pgrep -f [.]switch-to-configuration-wrapped; do sleep 0.2; done; sleep 2; exit 1'\nStandardOutput=null";
    };
    "hangs" = {
      "fault.service" = fault-service "Type=notify\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity";
    };
    # hangs in starting, until another unit's stop cancels the job
    "cancelled" = {
      "fault.service" = fault-service "Type=notify\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity";
      "fault-canceller.service" = fault-service "Type=exec\nExecStart=/bin/sh -c 'sleep 1; systemctl stop fault.service'";
    };
  };

  logs = {
    # 8 MiB of numbered lines
    "huge" = "seq -f 'activation line %.0f: the quick brown fox jumps over the lazy dog' 120000";
    # 100 MB of them
    "vast" = "seq -f 'activation line %.0f: the quick brown fox jumps over the lazy dog' 1500000";
    # every byte, escape sequences, broken UTF-8, no last newline
    "binary" = ''
      printf '\033[31mred\033[0m \033]0;title\007 \xff\xfe\x00\x01 caf\xe9\r\n'
      for i in 0 1 2 3; do for j in 0 1 2 3 4 5 6 7; do for k in 0 1 2 3 4 5 6 7; do printf "\\$i$j$k"; done; done; done
    '';
  };
in
faults:
let
  given = check.known "mkToplevel" "faults" [
    "activate" "activateSeconds" "build" "killSessions" "loader" "loaderSeconds" "log"
    "preSwitchCheck" "switch" "system" "unit"
  ] faults;
  activate = oneOf "activate" [ "fails" "missing" ] (given.activate or null);
  unit = oneOf "unit" (builtins.attrNames unitFaults) (given.unit or null);
  log = oneOf "log" (builtins.attrNames logs) (given.log or null);
  seconds = number "activateSeconds" (given.activateSeconds or 0);
  switch = check.known "mkToplevel" "faults.switch" [ "exit" "moved" "warn" ] given.switch;
in
{
  units = if unit == null then { } else unitFaults.${unit};
  build = oneOf "build" [ "fails" ] (given.build or null);
  activateMissing = activate == "missing";

  # Snippets of activation: before /etc is set up, and after.
  before = if log == null then "" else logs.${log};
  after = concatStringsSep "\n" [
    (if activate == "fails" then "false; snippet fault" else "")
    (
      if given.killSessions or false then
        ''
          # every ssh session of the host; the listener stays
          for pid in $(grep -lazE '^(sshd-session: |sshd: [^/]*(@|\[priv\]))' /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3); do
            kill -KILL "$pid"
          done
        ''
      else
        ""
    )
    (
      if seconds > 0 then
        ''
          for ((i = 1; i <= ${toString seconds}; i++)); do
            echo "activation takes its time: $i of ${toString seconds}"
            sleep 1
          done
        ''
      else
        ""
    )
  ];

  loader = oneOf "loader" [ "fails" "no-entry" "slow" ] (given.loader or null);
  loaderSeconds = number "loaderSeconds" (given.loaderSeconds or 10);
  preSwitchCheck = check.type "mkToplevel" "faults.preSwitchCheck" [ "bool" ] (given.preSwitchCheck or false);
  claimedSystem = given.system or null;

  # A switch-to-configuration that only plays its end; null for the usual one.
  stub =
    if !(given ? switch) then
      null
    else
      ''
        #!/bin/sh
        # plays the end of a switch, as asked for by faults.switch
        case ''${1:-} in
        switch | test) ;;
        *) exit 0 ;;
        esac
        ${if switch.moved or false then ''ln -sfn "$TOPLEVEL" /run/current-system'' else ""}
        ${
          if switch.warn or false then
            ''echo "warning: the following units failed: fault.service" >&2''
          else
            ""
        }
        exit ${toString (number "switch.exit" (switch.exit or 0))}
      '';
}
