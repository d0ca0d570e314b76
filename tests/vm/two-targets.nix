# The main job: two hosts, each listening for ssh on a port of its own only, are
# deployed in list order and serve their pages; a third, which the program never
# touches, is booted into the first one's system and must not differ. Then the host
# keys: pinned, pinned wrongly, saved, and through a jump host.
{ pkgs }:
let
  seen = name: {
    serverName = name;
    page = "${name} two\n";
    certificate = "etc/ssl-resource.pem";
  };
  host = name: port: {
    inherit port;
    seen = seen name;
    systems.two = import ./web.nix {
      inherit name;
      page = "${name} two\n";
    };
  };
in
{
  scenarios = [
    "TwoTargets"
    "Unchanged"
    "Pins"
    "HostKeys"
  ];
  hosts = {
    web1 = host "web1" 2201;
    web2 = host "web2" 2202;
    # It runs web1's system, so its sshd listens where web1's does.
    baseline = {
      port = 2201;
      seen = seen "web1";
      boots = {
        host = "web1";
        system = "two";
      };
    };
  };
  # web1's port is in its node entry, web2's only in the client configuration.
  maps = node: {
    nodes = [
      (node "web1" "two" { ssh.options = [ "Port=2201" ]; })
      (node "web2" "two" { })
    ];
  };
  clientConfig = ''
    Host web2
        Port 2202
  '';
}
