# The machines of the VM tests: a host that is deployed to, a deployer, and what a
# deploy brings.
{ pkgs, programs }:
let
  inherit (pkgs) lib;
  inherit (programs pkgs) deploy-ssh scenario;

  # What all machines have. Nothing is to be fetched: there is no network to wait for.
  common = {
    virtualisation.memorySize = 2048;
    nix.settings = {
      substituters = lib.mkForce [ ];
      experimental-features = [
        "nix-command"
        "flakes"
      ];
    };
  };
in
{
  # A host that is deployed to. It has a disk with a store of its own and a real
  # boot loader.
  #
  # Its address isn't part of its system, and the driver's network module is kept
  # from making it so: the baseline boots into another host's system.
  target =
    { port }:
    {
      imports = [ common ];
      virtualisation = {
        useBootLoader = true;
        useEFIBoot = true;
        interfaces.eth1.vlan = 1;
        # The image has no room but for what is in it.
        diskSize = 4096;
        fileSystems."/".autoResize = true;
      };
      boot.growPartition = true;
      boot.loader.systemd-boot.enable = true;
      boot.loader.efi.canTouchEfiVariables = true;
      networking.useDHCP = false;
      services.openssh = {
        enable = true;
        startWhenNeeded = false;
        ports = [ port ];
        authorizedKeysInHomedir = true;
        # Scenarios count connections and sessions.
        settings.LogLevel = "VERBOSE";
      };
    };

  # Where deploys are started, and looked at from. What is deployed is in its
  # store, though not in its system.
  deployer =
    { toplevels, hosts }:
    {
      imports = [ common ];
      virtualisation.additionalPaths = toplevels;
      networking.hosts = lib.mapAttrs' (name: address: lib.nameValuePair address [ name ]) hosts;
      environment.systemPackages = [
        deploy-ssh
        scenario
        pkgs.curl
        pkgs.openssl
      ];
    };
}
