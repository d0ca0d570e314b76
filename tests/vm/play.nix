# Makes a VM test of a scenario file. The machines are prepared by the test script,
# through the driver's own console: neither ssh nor the program under test has a part
# in it. Then the program `scenario` plays on the deployer.
{ pkgs, programs }:
let
  inherit (pkgs) lib;
  inherit (builtins)
    attrNames
    attrValues
    concatLists
    concatStringsSep
    elemAt
    genList
    length
    listToAttrs
    mapAttrs
    toJSON
    ;
  machines = import ./machines.nix { inherit pkgs programs; };
in
name:
{
  # Scenarios, in order; see ../scenario/cmd/scenario.
  scenarios,
  # Hosts by name, which is also that of their nodes. Targets come first, in list order.
  #   port     the only port that its sshd listens on
  #   module   what its first system and all others have, beside what every host has
  #   systems  what else each system has that it may get, by name
  #   seen     what it serves in the end: { serverName; page; certificate; }
  #   boots    the host and the system that it is booted into without any transport:
  #            it is the baseline
  hosts,
  # A function of `node`, which makes a node of a host's name, a system's name and
  # settings: the node maps by attribute of the deployer's flake.
  maps,
  # More outputs of that flake, as Nix text; `maps` is in scope.
  outputs ? "{ }",
  # ssh client configuration that the operator gives.
  clientConfig ? "",
  # Python that prepares a host, given `host`, `keys` and the configuration's machine.
  prepare ? (_: ""),
}:
let
  names = lib.naturalSort (attrNames hosts);
  targets = builtins.filter (host: !(hosts.${host} ? boots)) names;
  baselines = builtins.filter (host: hosts.${host} ? boots) names;
  addresses = listToAttrs (
    genList (i: {
      name = elemAt names i;
      value = "192.168.1.${toString (101 + i)}";
    }) (length names)
  );

  # A host whose next systems are in `system.build.deployed`. They aren't part of the
  # host's own closure, so they have to be copied.
  machine =
    host:
    {
      port,
      module ? { },
      systems ? { },
      ...
    }:
    { extendModules, nodes, ... }:
    {
      imports = [
        (machines.target { inherit port; })
        module
      ];
      virtualisation.additionalPaths = lib.optional (hosts.${host} ? boots) (booted nodes host);
      system.build.deployed = mapAttrs (
        system: more:
        (extendModules {
          modules = [
            more
            { environment.etc.deployed.text = system; }
          ];
        }).config.system.build.toplevel
      ) systems;
    };
  deployed =
    nodes: host: system:
    nodes.${host}.system.build.deployed.${system};
  booted = nodes: host: deployed nodes hosts.${host}.boots.host hosts.${host}.boots.system;

  flake =
    nodes:
    pkgs.writeText "flake.nix" ''
      { outputs = _: let maps = builtins.fromJSON (builtins.readFile ./maps.json); in maps // ${outputs}; }
    '';
  mapsFile =
    nodes:
    pkgs.writeText "maps.json" (
      toJSON (
        maps (
          host: system: settings:
          {
            name = host;
            inherit host;
            toplevel = "${deployed nodes host system}";
          }
          // settings
        )
      )
    );

  # As tests/scenario/cmd/scenario reads it.
  described =
    host:
    {
      node = host;
      inherit host;
      inherit (hosts.${host}) port;
    }
    // hosts.${host}.seen or { };
  world = pkgs.writeText "world.json" (
    toJSON {
      flake = "/root/fleet";
      program = "deploy-ssh";
      clientConfig = "/root/client.conf";
      ssh = {
        user = "root";
        key = "/root/onlooker";
        knownHosts = "/root/onlooker.known_hosts";
      };
      targets = map described targets;
      baseline = if baselines == [ ] then null else described (builtins.head baselines);
    }
  );

  bootBaseline = nodes: host: ''
    with subtest("${host} boots into the system that is deployed elsewhere"):
        ${host}.succeed(
            "nix-env -p /nix/var/nix/profiles/system --set ${booted nodes host}",
            "/nix/var/nix/profiles/system/bin/switch-to-configuration boot",
        )
        ${host}.shutdown()
        ${host}.start()
  '';
in
pkgs.testers.runNixOSTest {
  name = "deploy-ssh-${name}";

  nodes = mapAttrs machine hosts // {
    deployer =
      { nodes, ... }:
      {
        imports = [
          (machines.deployer {
            hosts = addresses;
            toplevels = concatLists (map (host: attrValues nodes.${host}.system.build.deployed) targets);
          })
        ];
      };
  };

  testScript =
    { nodes, ... }:
    ''
      start_all()

      ${concatStringsSep "\n" (map (bootBaseline nodes) baselines)}
      with subtest("keys, addresses and the flake are in place"):
          keys = deployer.succeed(
              "mkdir -p -m 700 /root/.ssh /root/fleet",
              "ssh-keygen -q -t ed25519 -N \"\" -f /root/.ssh/id_ed25519",
              "ssh-keygen -q -t ed25519 -N \"\" -f /root/onlooker",
              "cp ${flake nodes} /root/fleet/flake.nix",
              "cp ${mapsFile nodes} /root/fleet/maps.json",
              "install -m 600 ${pkgs.writeText "client.conf" clientConfig} /root/client.conf",
              "cat /root/.ssh/id_ed25519.pub /root/onlooker.pub",
          ).strip()
          for host, address in (
              ${concatStringsSep "\n        " (map (host: "(${host}, \"${addresses.${host}}\"),") names)}
          ):
              host.wait_for_unit("sshd.service")
              host.succeed(
                  f"mkdir -p -m 700 /root/.ssh && echo '{keys}' > /root/.ssh/authorized_keys",
                  # The driver's cards for network 1 have these MAC addresses.
                  "card=$(grep -l ^52:54:00:12:01: /sys/class/net/*/address | cut -d/ -f5)"
                  f" && ip link set $card up && ip address add {address}/24 dev $card",
              )
              deployer.wait_until_succeeds(f"ping -c 1 -w 1 {address}", timeout=60)
      ${prepare nodes}
      print(deployer.succeed("scenario run ${concatStringsSep " " scenarios} --world ${world}"))
    '';
}
