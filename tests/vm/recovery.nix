# A host that is broken from outside: each break is got through or reported.
{ pkgs }:
let
  one = node: system: [ (node "web1" system { ssh.options = [ "Port=2201" ]; }) ];
  systems = {
    good = { };
    other = { };
    blocked.systemd.services.fault = {
      wantedBy = [ "multi-user.target" ];
      serviceConfig = {
        Type = "oneshot";
        TimeoutStartSec = "infinity";
        ExecStart = "${pkgs.coreutils}/bin/sleep infinity";
      };
    };
    hangs.system.activationScripts.fault = "sleep 100000";
    slow.system.activationScripts.slow = ''
      for i in 1 2 3 4 5 6 7 8; do
        echo "activation takes its time: $i of 8"
        sleep 1
      done
    '';
  };
in
{
  scenarios = [ "Recovery" ];
  hosts.web1 = {
    port = 2201;
    inherit systems;
  };
  maps = node: builtins.mapAttrs (system: _: one node system) systems;
}
