# The options of what is offered for the module system, as a list for the reference
# in docs/options.md: each with its name, type, default and description.
{ lib }:
let
  inherit (builtins) attrNames concatMap isAttrs;
  ours = (import ../../nix/lib.nix).types { inherit lib; };

  walk =
    path: options:
    concatMap (
      name:
      let
        option = options.${name};
        here = path ++ [ name ];
      in
      if name == "_module" || name == "_freeformOptions" then
        [ ]
      else if option._type or "" == "option" then
        [
          {
            name = builtins.concatStringsSep "." here;
            type = option.type.description;
            default = if option ? default then builtins.toJSON option.default else null;
            description = option.description or "";
            readOnly = option.readOnly or false;
          }
        ]
        ++ walk here (option.type.getSubOptions here)
      else if isAttrs option then
        walk here option
      else
        [ ]
    ) (attrNames options);
  declared =
    module: path:
    let
      set = (import module) {
        inherit lib;
        config = throw "an option depends on the configuration";
        self = throw "an option depends on the flake";
      };
    in
    walk path (lib.getAttrFromPath path set.options);
in
{
  map = walk [ ] (ours.nodeMap.getSubOptions [ ]);
  node = walk [ ] (ours.node.getSubOptions [ ]);
  target = declared ../../nix/target.nix [
    "deploy-ssh"
    "target"
  ];
  parts = declared ../../nix/flake-module.nix [ "deploy-ssh" ];
}
