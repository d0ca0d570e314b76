# The main job: two hosts, each listening for ssh on a port of its own only, are
# deployed in list order and serve their pages; a third, which the program never
# touches, is booted into the first one's system and must not differ.
{
  pkgs,
  deployer,
  target,
  web,
}:
let
  hosts = {
    web1 = "192.168.1.101";
    web2 = "192.168.1.102";
    baseline = "192.168.1.103";
  };

  # A host whose next system is in `system.build.deployed`: itself and the web
  # server. It isn't part of the host's own closure, so it has to be copied.
  deployedTo =
    name: port:
    { extendModules, ... }:
    {
      imports = [ (target { inherit port; }) ];
      system.build.deployed =
        (extendModules {
          modules = [
            (web {
              inherit name;
              page = "${name} two\n";
            })
          ];
        }).config.system.build.toplevel;
    };

  # As tests/scenario/cmd/scenario reads it.
  seen = node: name: port: {
    inherit node port;
    host = node;
    serverName = name;
    page = "${name} two\n";
    certificate = "etc/ssl-resource.pem";
  };
  world = pkgs.writeText "world.json" (
    builtins.toJSON {
      flake = "/root/fleet";
      program = "deploy-ssh";
      clientConfig = "/root/client.conf";
      ssh = {
        user = "root";
        key = "/root/onlooker";
        knownHosts = "/root/onlooker.known_hosts";
      };
      targets = [
        (seen "web1" "web1" 2201)
        (seen "web2" "web2" 2202)
      ];
      # It runs web1's system, so its sshd listens where web1's does.
      baseline = seen "baseline" "web1" 2201;
    }
  );

  # web1's port is in its node entry, web2's only in the client configuration.
  clientConfig = pkgs.writeText "client.conf" ''
    Host web2
        Port 2202
  '';
  flake =
    nodes:
    pkgs.writeText "flake.nix" ''
      {
        outputs = { self }: {
          nodes = [
            {
              name = "web1";
              host = "web1";
              toplevel = "${nodes.web1.system.build.deployed}";
              ssh.options = [ "Port=2201" ];
            }
            {
              name = "web2";
              host = "web2";
              toplevel = "${nodes.web2.system.build.deployed}";
            }
          ];
        };
      }
    '';
in
{
  name = "deploy-ssh-two-targets";

  nodes = {
    deployer =
      { nodes, ... }:
      {
        imports = [
          (deployer {
            inherit hosts;
            toplevels = [
              nodes.web1.system.build.deployed
              nodes.web2.system.build.deployed
            ];
          })
        ];
      };
    web1 = deployedTo "web1" 2201;
    web2 = deployedTo "web2" 2202;
    baseline =
      { nodes, ... }:
      {
        imports = [ (target { port = 2203; }) ];
        virtualisation.additionalPaths = [ nodes.web1.system.build.deployed ];
      };
  };

  testScript =
    { nodes, ... }:
    ''
      start_all()

      with subtest("the baseline boots into the system that web1 is to get"):
          baseline.succeed(
              "nix-env -p /nix/var/nix/profiles/system --set ${nodes.web1.system.build.deployed}",
              "/nix/var/nix/profiles/system/bin/switch-to-configuration boot",
          )
          baseline.shutdown()
          baseline.start()

      with subtest("keys, addresses and the flake are in place"):
          keys = deployer.succeed(
              "mkdir -p -m 700 /root/.ssh /root/fleet",
              "ssh-keygen -q -t ed25519 -N \"\" -f /root/.ssh/id_ed25519",
              "ssh-keygen -q -t ed25519 -N \"\" -f /root/onlooker",
              "cp ${flake nodes} /root/fleet/flake.nix",
              "install -m 600 ${clientConfig} /root/client.conf",
              "cat /root/.ssh/id_ed25519.pub /root/onlooker.pub",
          ).strip()
          for host, address in (
              (web1, "${hosts.web1}"),
              (web2, "${hosts.web2}"),
              (baseline, "${hosts.baseline}"),
          ):
              host.wait_for_unit("sshd.service")
              host.succeed(
                  f"mkdir -p -m 700 /root/.ssh && echo '{keys}' > /root/.ssh/authorized_keys",
                  # The driver's cards for network 1 have these MAC addresses.
                  "card=$(grep -l ^52:54:00:12:01: /sys/class/net/*/address | cut -d/ -f5)"
                  f" && ip link set $card up && ip address add {address}/24 dev $card",
              )
              deployer.wait_until_succeeds(f"ping -c 1 -w 1 {address}", timeout=60)

      print(deployer.succeed("scenario run TwoTargets Unchanged --world ${world}"))
    '';
}
