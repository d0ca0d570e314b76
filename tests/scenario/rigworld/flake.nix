# The node maps that the scenarios are played with in the rig.
{
  outputs =
    { self }:
    let
      toplevels = import ./toplevels { };
      web =
        generation: name: host:
        toplevels.mkToplevel {
          name = "${name}-${generation}";
          web = {
            page = "${name} ${generation}\n";
            inherit host;
          };
        };
      # web1's port is in its node entry, web2's only in the client configuration.
      web1 = generation: {
        name = "web1";
        host = "web1";
        toplevel = web generation "web1" "web1";
        ssh.options = [ "Port=2201" ];
      };
      web2 = generation: {
        name = "web2";
        host = "web2";
        toplevel = web generation "web2" "web2";
      };
      web1Node = web1 "two";

      # web1 with systems that serve nothing: a good one, and some with faults.
      plain = name: more: web1 "two" // { toplevel = toplevels.mkToplevel ({ inherit name; } // more); };
      one = name: more: [ (plain name more) ];
    in
    {
      lib = toplevels;

      # What each host runs before the first deploy.
      first = toplevels.mkToplevel { name = "first"; };

      # What a host runs that is booted into web1's system under its own name.
      baseline = web1Node.toplevel;

      nodes = [
        (web1 "two")
        (web2 "two")
      ];

      oneDown = [
        (web1 "three")
        {
          name = "gone";
          host = "web1";
          toplevel = web "three" "gone" "gone";
          ssh.options = [ "Port=1" ];
        }
        (web2 "three")
      ];

      brokenSystems = [
        {
          name = "throws";
          toplevel = toplevels.throws "throws";
        }
        (web1 "four")
        {
          name = "aborts";
          toplevel = toplevels.aborts "aborts";
        }
        {
          name = "unbuildable";
          toplevel = toplevels.unbuildable "unbuildable";
        }
        (web2 "four")
      ];

      good = one "good" { };
      other = one "other" { };
      blocked = one "blocked" { faults.unit = "hangs"; };
      hangs = one "hangs" { faults.activateSeconds = 100000; };
      slow = one "slow" { faults.activateSeconds = 8; };
      unitFails = one "unit-fails" { faults.unit = "fails"; };
      activateFails = one "activate-fails" { faults.activate = "fails"; };
      checkFails = one "check-fails" { faults.preSwitchCheck = true; };
      loaderFails = one "loader-fails" { faults.loader = "fails"; };
      sudo = [ (plain "sudo" { } // { elevate = "sudo"; }) ];
      doas = [ (plain "doas" { } // { elevate = "doas"; }) ];

      bad = {
        mapThrows = throw "the map itself throws";
        duplicates = [
          (web1 "two")
          (web1 "two")
        ];
        illegalName = [ (web1 "two" // { name = "web 1"; }) ];
        noStorePath = [ (web1 "two" // { toplevel = "/etc/passwd"; }) ];
        unknownField = [ (web1 "two" // { hots = "web1"; }) ];
        unknownSSHField = [ (web1 "two" // { ssh.optoins = [ ]; }) ];
      };
    };
}
