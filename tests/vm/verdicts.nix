# Systems that go wrong by themselves: each gets the verdict that is true.
{ pkgs }:
let
  one = node: system: [ (node "web1" system { ssh.options = [ "Port=2201" ]; }) ];
  systems = {
    good = { };
    other = { };
    unitFails.systemd.services.fault = {
      wantedBy = [ "multi-user.target" ];
      serviceConfig = {
        Type = "oneshot";
        ExecStart = "${pkgs.coreutils}/bin/false";
      };
    };
    activateFails.system.activationScripts.fault = "false";
    checkFails.system.preSwitchChecks.fault = "exit 1";
    loaderFails.system.build.installBootLoader = pkgs.lib.mkForce (
      pkgs.writeShellScript "install-boot-loader" "exit 1"
    );
  };
in
{
  scenarios = [ "Verdicts" ];
  hosts.web1 = {
    port = 2201;
    inherit systems;
  };
  maps = node: builtins.mapAttrs (system: _: one node system) systems;
}
