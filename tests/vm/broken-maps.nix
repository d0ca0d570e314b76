# Maps that can't be read, nodes that can't be reached, evaluated or built: each is
# named, and the others are deployed.
{ pkgs }:
let
  port = {
    ssh.options = [ "Port=2201" ];
  };
  host = port: {
    inherit port;
    systems = {
      two = { };
      three = { };
      four = { };
    };
  };
in
{
  scenarios = [
    "BadInput"
    "OneDown"
    "BrokenSystems"
  ];
  hosts.web1 = host 2201;
  hosts.web2 = host 2202;
  clientConfig = ''
    Host web2
        Port 2202
  '';
  maps = node: {
    nodes = [
      (node "web1" "two" port)
      (node "web2" "two" { })
    ];
    oneDown = [
      (node "web1" "three" port)
      (
        node "web1" "three" { ssh.options = [ "Port=1" ]; }
        // {
          name = "gone";
          # A firewall would let the deployer wait; here, it is refused.
          host = "127.0.0.1";
        }
      )
      (node "web2" "three" { })
    ];
    four = [
      (node "web1" "four" port)
      (node "web2" "four" { })
    ];
  };
  outputs = ''
    (let
      web1 = builtins.elemAt maps.nodes 0;
      four = builtins.elemAt maps.four;
    in {
      brokenSystems = [
        { name = "throws"; toplevel = throw "the toplevel of throws throws, as asked for"; }
        (four 0)
        { name = "aborts"; toplevel = abort "the toplevel of aborts aborts, as asked for"; }
        {
          name = "unbuildable";
          toplevel = derivation {
            name = "unbuildable";
            system = "${pkgs.stdenv.hostPlatform.system}";
            builder = "/bin/sh";
            args = [ "-c" "exit 1" ];
          };
        }
        (four 1)
      ];
      bad = {
        mapThrows = throw "the map itself throws";
        duplicates = [ web1 web1 ];
        illegalName = [ (web1 // { name = "web 1"; }) ];
        noStorePath = [ (web1 // { toplevel = "/etc/passwd"; }) ];
        unknownField = [ (web1 // { hots = "web1"; }) ];
        unknownSSHField = [ (web1 // { ssh.optoins = [ ]; }) ];
      };
    })'';
}
