# Option types for node maps in the module system of nixpkgs:
#
#   types = deploy-ssh.lib.types { inherit (nixpkgs) lib; };
#   options.nodes = lib.mkOption { type = types.nodeMap; };
#
# Each text type carries the `pattern` of schema.json that it checks with, so
# that a form admits what an evaluation admits. What such a type makes is a node
# map for `deploy-ssh .#nodes`; no toplevel is forced on the way.
{ lib }:
let
  inherit (builtins) attrNames concatStringsSep isString;
  inherit (lib) mkOption mkOptionType;
  inherit (lib.types)
    attrsOf
    either
    listOf
    nullOr
    submodule
    ;

  check = import ./check.nix;

  # A text under a rule of the schema.
  text =
    rule:
    let
      definition = check.definitions.${rule};
    in
    mkOptionType {
      name = "deploy-ssh-${rule}";
      description =
        definition.description
        + (
          if rule == "option" then
            ", and none of the keywords ${concatStringsSep ", " (attrNames definition."x-refused")}, which are the program's own"
          else
            ""
        );
      descriptionClass = "composite";
      check = value: isString value && check.admits rule value;
      merge = lib.mergeEqualOption;
    }
    // {
      inherit (definition) pattern;
    };

  name = text "name";
  host = text "host";
  user = text "user";
  key = text "key";
  hostKey = text "hostKey";
  option = text "option";
  elevate = text "elevate";
  unit = text "unit";
  machineId = text "machineId";
  hostName = text "hostName";

  # A system is looked at by the program, for the selected nodes only.
  toplevel = mkOptionType {
    name = "deploy-ssh-toplevel";
    description = "a system: a derivation, a NixOS configuration or a store path";
    descriptionClass = "composite";
    check = _: true;
    merge = lib.mergeOneOption;
  };

  inherits =
    type: description:
    mkOption {
      type = nullOr type;
      default = null;
      description = "${description} Null inherits.";
    };
  list =
    type: description:
    mkOption {
      type = listOf type;
      default = [ ];
      inherit description;
    };
  part =
    type: description:
    mkOption {
      inherit type description;
      default = { };
    };

  sharedFields = {
    user = inherits user "Login user.";
    key = inherits key "Path of the private key file on the deployer. A string, not a Nix path: that would be copied to the store, for all to read.";
    options = list option "Options of ssh_config, each a bare `Key=Value`. A list that is not empty replaces that of the layer below.";
  };
  shared = submodule { options = sharedFields; };
  entryFields = sharedFields // {
    host = inherits host "Where to connect to, instead of the node's `host`.";
    hostKey = inherits hostKey "Public key lines of the host, which must show one of them.";
  };
  entry = submodule { options = entryFields; };
  expect = submodule {
    options = {
      machineId = inherits machineId "The host's machine id.";
      hostName = inherits hostName "The host's own name.";
    };
  };

  nodeFields = {
    host = inherits host "Address or name of the host; without one, the node's name.";
    toplevel = mkOption {
      type = toplevel;
      description = "The system.";
    };
    tags = list name "Tags to select the node by.";
    ssh = part entry "SSH settings of this node.";
    elevate = inherits elevate "How the login user becomes root.";
    expect = part expect "Who the host must be.";
    ignoreUnits = list unit "Units whose failure does not count.";
  };
  # A node with what a module says of it.
  nodeWith =
    module:
    submodule {
      imports = [ module ];
      options = nodeFields;
    };
  node = nodeWith { };
  listedNode = submodule {
    options = nodeFields // {
      name = mkOption {
        type = name;
        description = "The node's name.";
      };
    };
  };

  mapDefaults = submodule {
    options = {
      ssh = part shared "SSH settings of all nodes.";
      elevate = inherits elevate "How the login user becomes root.";
    };
  };
  nodeMap = submodule {
    options = {
      nodes = mkOption {
        type = either (listOf listedNode) (attrsOf node);
        description = "The nodes: a list in deploy order, or an attribute set by name.";
      };
      defaults = part mapDefaults "Settings of all nodes that say nothing else.";
      order = inherits (listOf name) "Names in deploy order, when `nodes` is an attribute set.";
      combined = mkOption {
        type = nullOr toplevel;
        default = null;
        description = "One system of all nodes, which `--combined` deploys to the host of the first.";
      };
    };
  };
  # Where SSH settings stand alone, what makes the login user root is among them.
  withElevate =
    fields:
    submodule {
      options = fields // {
        elevate = inherits elevate "How the login user becomes root.";
      };
    };
  environmentMap = submodule {
    options = {
      defaults = part (withElevate sharedFields) "SSH settings of all nodes.";
      nodes = mkOption {
        type = attrsOf (withElevate entryFields);
        default = { };
        description = "SSH settings by node name.";
      };
    };
  };
in
{
  inherit
    elevate
    entry
    environmentMap
    expect
    host
    hostKey
    hostName
    key
    listedNode
    machineId
    mapDefaults
    name
    node
    nodeMap
    nodeWith
    option
    shared
    toplevel
    unit
    user
    ;
}
