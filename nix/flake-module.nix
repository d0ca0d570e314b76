# A module for flake-parts: `deploy-ssh` becomes the flake's node map, checked.
#
#   imports = [ deploy-ssh.flakeModules.default ];
#   deploy-ssh.nodes.web = { host = "web.example.org"; tags = [ "eu" ]; };
#
# Only the nodes that are named here are deployed. Each takes the flake's NixOS
# configuration of its name.
{
  config,
  lib,
  self,
  ...
}:
let
  inherit (lib) mkOption types;
  deploy-ssh = import ./lib.nix;
  ours = deploy-ssh.types { inherit lib; };
  cfg = config.deploy-ssh;
  map = {
    inherit (cfg)
      nodes
      defaults
      order
      combined
      ;
  };
in
{
  options.deploy-ssh = {
    nodes = mkOption {
      type = types.attrsOf (
        ours.nodeWith (
          { name, ... }:
          {
            config.toplevel = lib.mkDefault (
              self.nixosConfigurations.${name}
                or (throw "deploy-ssh.nodes.${name}: there is no nixosConfigurations.${name}; add it, or `toplevel`")
            );
          }
        )
      );
      default = { };
      description = "The nodes by name.";
    };
    defaults = mkOption {
      type = ours.mapDefaults;
      default = { };
      description = "Settings of all nodes that say nothing else.";
    };
    order = mkOption {
      type = types.nullOr (types.listOf ours.name);
      default = null;
      description = "Names in deploy order; without it, nodes go by name.";
    };
    combined = mkOption {
      type = types.nullOr ours.toplevel;
      default = null;
      description = "One system of all nodes, which `--combined` deploys to the host of the first.";
    };
    attribute = mkOption {
      type = ours.name;
      default = "nodes";
      description = "The flake's output that the node map becomes: `deploy-ssh .#nodes`.";
    };
  };

  config = lib.mkIf (cfg.nodes != { }) {
    flake.${cfg.attribute} = map;
    perSystem =
      { system, ... }:
      {
        checks = (deploy-ssh.checks map).${system} or { };
      };
  };
}
