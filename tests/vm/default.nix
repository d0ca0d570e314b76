# The NixOS VM tests, by the names of their checks. Each is short: it makes the
# machines and a description of them, and lets the program `scenario` play on the
# deployer what the rig plays, too (see ../scenario).
#
# The machines are prepared by the test script, through the driver's own console:
# neither ssh nor the program under test has a part in it.
{
  pkgs,
  # The programs for a pkgs, as package.nix makes them.
  programs,
}:
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

  # What a deploy brings: a page over HTTPS, whose certificate is a resource of
  # the closure. File rules put page and certificate where the web server looks
  # for them; it refuses to start without.
  web =
    { name, page }:
    { pkgs, ... }:
    let
      state = "/var/lib/web";
      # Readable by all, as everything in a store: for tests only.
      resource =
        pkgs.runCommand "resource-${name}"
          {
            nativeBuildInputs = [ pkgs.openssl ];
          }
          ''
            mkdir $out
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
              -subj "/CN=${name}" -addext "subjectAltName=DNS:${name}" \
              -keyout $out/key.pem -out $out/cert.pem
          '';
    in
    {
      environment.etc."ssl-resource.pem".source = "${resource}/cert.pem";
      systemd.tmpfiles.settings.web = {
        ${state}.d.mode = "0755";
        "${state}/root".d.mode = "0755";
        "${state}/root/index.html"."L+".argument = "${pkgs.writeText "index.html" page}";
        "${state}/cert.pem"."L+".argument = "${resource}/cert.pem";
        "${state}/key.pem"."L+".argument = "${resource}/key.pem";
      };
      services.nginx = {
        enable = true;
        virtualHosts.${name} = {
          onlySSL = true;
          sslCertificate = "${state}/cert.pem";
          sslCertificateKey = "${state}/key.pem";
          root = "${state}/root";
        };
      };
      systemd.services.nginx.unitConfig.AssertPathExists = [
        "${state}/cert.pem"
        "${state}/root/index.html"
      ];
      networking.firewall.allowedTCPPorts = [ 443 ];
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
in
{
  vm-two-targets = pkgs.testers.runNixOSTest (
    import ./two-targets.nix {
      inherit
        pkgs
        deployer
        target
        web
        ;
    }
  );
}
