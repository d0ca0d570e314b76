# What the modules make of what people write, under any lib that has the module
# system: nixpkgs' own in `nix flake check`, a stand-in in the Go tests.
# The value is by name { got, want }; `failed` are the names where these differ.
{ lib }:
let
  inherit (lib) mkOption types;
  a =
    type: default:
    mkOption { inherit type default; };
  list = a (types.listOf types.anything) [ ];
  host =
    target:
    (lib.evalModules {
      modules = [
        ../../nix/target.nix
        {
          # Those options of NixOS that the module sets or reads.
          options = {
            assertions = list;
            networking.hostName = a types.str "web";
            nix.settings.trusted-users = list;
            security.doas.enable = a types.bool false;
            security.doas.extraRules = list;
            security.sudo.extraRules = list;
            security.sudo-rs.extraRules = list;
            services.openssh.enable = a types.bool false;
            users.groups = a (types.attrsOf types.anything) { };
            users.users = a (types.attrsOf types.anything) { };
          };
          config.deploy-ssh = { inherit target; };
        }
      ];
    }).config;
  parts =
    settings:
    (lib.evalModules {
      specialArgs.self.nixosConfigurations = {
        web = configuration;
        db = throw "a system that nobody asked for was evaluated";
      };
      modules = [
        ../../nix/flake-module.nix
        {
          # As flake-parts has them: outputs are not looked into.
          options.flake = mkOption { type = types.lazyAttrsOf types.raw; };
          options.perSystem = mkOption { type = types.raw; };
          config.deploy-ssh = settings;
        }
      ];
    }).config;
  configuration = {
    options = { };
    config.system.build.toplevel = derivation {
      name = "nixos-system-web";
      system = "x86_64-linux";
      builder = "/bin/sh";
    };
  };
  contract =
    nodes:
    import ../../nix/contract.nix {
      toplevels = "caught";
      include = [ "web" ];
      exclude = [ ];
    } nodes;

  key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICYyyRy7JtIWwGDsQCIE7Oku0z3MavMBDTJ+2S7t6Tsu";
  deploy = host {
    enable = true;
    authorizedKeys = [ "ssh-ed25519 AAAA ann" ];
    hostKey = key;
  };
  doas = host {
    enable = true;
    user = "ops";
    elevate = "doas";
    restrict = false;
    trusted = true;
    authorizedKeys = [ "ssh-ed25519 AAAA ann" ];
    host = "10.0.0.2";
  };
  root = host {
    enable = true;
    user = "root";
  };
  rules = map (command: {
    inherit command;
    options = [ "NOPASSWD" ];
  }) programs;
  programs = [
    "/bin/sh"
    "/run/current-system/sw/bin/nix-daemon"
  ];

  tests = {
    "a user of its own" = {
      got = {
        inherit (deploy.users.users.deploy) isSystemUser useDefaultShell group;
        groups = builtins.attrNames deploy.users.groups;
        sshd = deploy.services.openssh.enable;
      };
      want = {
        isSystemUser = true;
        useDefaultShell = true;
        group = "deploy";
        groups = [ "deploy" ];
        sshd = true;
      };
    };
    "keys that only deploy" = {
      got = deploy.users.users.deploy.openssh.authorizedKeys.keys;
      want = [
        ''restrict,port-forwarding,permitlisten="localhost:*",permitlisten="127.0.0.1:*" ssh-ed25519 AAAA ann''
      ];
    };
    "a rule for sudo" = {
      got = deploy.security.sudo.extraRules;
      want = [
        {
          users = [ "deploy" ];
          runAs = "root";
          commands = rules;
        }
      ];
    };
    "sudo-rs has the same" = {
      got = deploy.security.sudo-rs;
      want = deploy.security.sudo;
    };
    "no rule for doas" = {
      got = deploy.security.doas.extraRules;
      want = [ ];
    };
    "nobody is trusted unasked" = {
      got = deploy.nix.settings.trusted-users;
      want = [ ];
    };
    "its node entry" = {
      got = deploy.deploy-ssh.target.node;
      want = {
        host = null;
        elevate = "sudo";
        expect = {
          hostName = "web";
          machineId = null;
        };
        ssh = {
          host = null;
          user = "deploy";
          key = null;
          hostKey = key;
          options = [ ];
        };
      };
    };
    "the entry is one that the program takes" = {
      got =
        (contract {
          web = deploy.deploy-ssh.target.node // {
            toplevel = configuration;
          };
        }).problems;
      want = [ ];
    };
    "rules for doas" = {
      got = doas.security.doas;
      want = {
        enable = true;
        extraRules = map (cmd: {
          users = [ "ops" ];
          runAs = "root";
          noPass = true;
          inherit cmd;
        }) programs;
      };
    };
    "a trusted user with keys as they are" = {
      got = {
        inherit (doas.users.users.ops.openssh.authorizedKeys) keys;
        inherit (doas.nix.settings) trusted-users;
        inherit (doas.deploy-ssh.target.node) host elevate;
      };
      want = {
        keys = [ "ssh-ed25519 AAAA ann" ];
        trusted-users = [ "ops" ];
        host = "10.0.0.2";
        elevate = "doas";
      };
    };
    "root needs no rule" = {
      got = {
        node = root.deploy-ssh.target.node.elevate;
        sudo = root.security.sudo.extraRules;
        user = root.users.users.root.isSystemUser or false;
      };
      want = {
        node = null;
        sudo = [ ];
        user = false;
      };
    };
    "no way to become root is said" = {
      got = map (a: a.assertion) (host {
        enable = true;
        elevate = "";
      }).assertions;
      want = [ false ];
    };
    "nothing where it is off" = {
      got = (host { }).users.users;
      want = { };
    };
    "flake-parts: the map" = {
      got =
        let
          made = contract (parts {
            nodes.web.host = "web.example.org";
            nodes.db.tags = [ "data" ];
            order = [
              "web"
              "db"
            ];
            defaults.ssh.user = "deploy";
          }).flake.nodes;
        in
        {
          inherit (made) problems ordered;
          inherit (made.defaults.ssh) user;
          nodes = map (node: node.name) made.nodes;
          system = (builtins.head made.nodes).system;
        };
      want = {
        problems = [ ];
        ordered = true;
        user = "deploy";
        nodes = [
          "web"
          "db"
        ];
        system = "x86_64-linux";
      };
    };
    "flake-parts: its check" = {
      got = ((parts { nodes.web = { }; }).perSystem { system = "x86_64-linux"; }).checks.deploy-ssh-nodes.name;
      want = "deploy-ssh-nodes";
    };
    "flake-parts: a node without a system" = {
      got = (builtins.tryEval (parts { nodes.mail = { }; }).flake.nodes.nodes.mail.toplevel).success;
      want = false;
    };
    "types refuse what the program refuses" = {
      got = map (ssh: (builtins.tryEval (builtins.deepSeq (parts { nodes.web = { inherit ssh; }; }).flake.nodes.nodes.web.ssh true)).success) [
        { options = [ "Port=22" ]; }
        { options = [ "-p 22" ]; }
        { options = [ "LogLevel=QUIET" ]; }
        { optoins = [ ]; }
        { hostKey = "web ssh-ed25519 AAAA"; }
      ];
      want = [
        true
        false
        false
        false
        false
      ];
    };
  };
in
{
  inherit tests;
  failed = builtins.filter (name: tests.${name}.got != tests.${name}.want) (builtins.attrNames tests);
}
