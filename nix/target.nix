# A NixOS module for hosts that are deployed to: a login user for deploy-ssh, what
# it may do, and the node entry that fits.
#
#   imports = [ deploy-ssh.nixosModules.target ];
#   deploy-ssh.target = {
#     enable = true;
#     authorizedKeys = [ "ssh-ed25519 AAAA… ann@deployer" ];
#     hostKey = builtins.readFile ./web.pub;
#   };
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  inherit (import ./types.nix { inherit lib; })
    elevate
    entry
    expect
    host
    hostKey
    user
    ;
  cfg = config.deploy-ssh.target;
  root = cfg.user == "root";

  # All that deploy-ssh runs as root: its scripts, which /bin/sh reads from standard
  # input, and the receiving end of `nix copy`, where the host can't fetch from the
  # deployer. Who may run the first may do everything.
  commands = [
    "/bin/sh"
    "/run/current-system/sw/bin/nix-daemon"
  ];

  # The keys open connections for deploy-ssh alone: no terminal, no agent, no X11. The
  # forward is the one that the host fetches its closure through.
  restricted = key: ''restrict,port-forwarding,permitlisten="localhost:*",permitlisten="127.0.0.1:*" ${key}'';

  sudo.extraRules = mkIf (!root && cfg.elevate == "sudo") [
    {
      users = [ cfg.user ];
      runAs = "root";
      commands = map (command: {
        inherit command;
        options = [ "NOPASSWD" ];
      }) commands;
    }
  ];
in
{
  options.deploy-ssh.target = {
    enable = mkOption {
      type = types.bool;
      default = false;
      description = "Whether deploy-ssh may deploy to this host.";
    };
    user = mkOption {
      type = user;
      default = "deploy";
      description = "The login user, which is made unless it is root.";
    };
    authorizedKeys = mkOption {
      type = types.listOf types.str;
      default = [ ];
      description = "Public keys that log in as this user, each a line without options.";
    };
    restrict = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Whether the keys open no terminal, no agent and no X11, and listen on the host's
        loopback alone. They still run commands: with `elevate`, any command as root.
      '';
    };
    elevate = mkOption {
      type = elevate;
      default = "sudo";
      description = ''
        How the login user becomes root. The rule that it gets names the programs that
        deploy-ssh starts, `/bin/sh` and `nix-daemon`, and needs no password. It is
        root all the same, since that shell runs what it is sent: it keeps other users,
        passwords and other ways out, not the holder of the key.
      '';
    };
    trusted = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether the store takes unsigned paths from this user. A user who becomes root
        by `elevate` needs it for nothing.
      '';
    };
    host = mkOption {
      type = types.nullOr host;
      default = null;
      description = "Where deployers reach this host; without it, the node's name.";
    };
    hostKey = mkOption {
      type = types.nullOr hostKey;
      default = null;
      description = "This host's own public key lines, for the pin in `node`; `deploy-ssh hostkeys` prints them.";
    };
    node = mkOption {
      type = types.submodule {
        options = {
          host = mkOption {
            type = types.nullOr host;
            description = "`host`.";
          };
          elevate = mkOption {
            type = types.nullOr elevate;
            description = "`elevate`, unless the login user is root.";
          };
          ssh = mkOption {
            type = entry;
            description = "The login user and the pinned host key.";
          };
          expect = mkOption {
            type = expect;
            description = "This host's name.";
          };
        };
      };
      readOnly = true;
      description = ''
        The entry of this host in a node map: `nodes.web = self.nixosConfigurations.web.config.deploy-ssh.target.node`.
        Reading it evaluates the host's configuration. It expects the host to have the name
        that the configuration gives it, so it is for hosts that run this already.
      '';
    };
  };

  config = mkIf cfg.enable {
    assertions = [
      {
        assertion = root || cfg.elevate != "";
        message = "deploy-ssh.target: the user ${cfg.user} needs a way to become root: elevate = \"sudo\" or \"doas\"";
      }
    ];

    deploy-ssh.target.node = {
      inherit (cfg) host;
      elevate = if root then null else cfg.elevate;
      ssh = {
        inherit (cfg) user hostKey;
      };
      expect.hostName = if config.networking.hostName == "" then null else config.networking.hostName;
    };

    services.openssh.enable = true;
    users.users.${cfg.user} = lib.mkMerge [
      { openssh.authorizedKeys.keys = map (if cfg.restrict then restricted else key: key) cfg.authorizedKeys; }
      (mkIf (!root) {
        isSystemUser = true;
        group = cfg.user;
        # A shell is what runs the commands of a login.
        useDefaultShell = true;
      })
    ];
    users.groups = mkIf (!root) { ${cfg.user} = { }; };

    # sudo-rs reads rules of its own, and only where it is enabled.
    security.sudo = sudo;
    security.sudo-rs = sudo;
    security.doas = mkIf (!root && cfg.elevate == "doas") {
      enable = true;
      extraRules = map (cmd: {
        users = [ cfg.user ];
        runAs = "root";
        noPass = true;
        inherit cmd;
      }) commands;
    };
    nix.settings.trusted-users = mkIf (!root && cfg.trusted) [ cfg.user ];
  };
}
