# The pieces of nixpkgs' lib that this project uses, with nixpkgs' meaning.
let
  inherit (builtins)
    any
    attrNames
    listToAttrs
    map
    pathExists
    stringLength
    substring
    toString
    ;
in
import ./modules.nix
// rec {
  nameValuePair = name: value: { inherit name value; };
  genAttrs = names: f: listToAttrs (map (name: nameValuePair name (f name)) names);
  mapAttrs' = f: set: listToAttrs (map (name: f name set.${name}) (attrNames set));
  naturalSort = builtins.sort (a: b: a < b);
  optional = condition: value: if condition then [ value ] else [ ];
  getAttrFromPath = path: set: builtins.foldl' (found: name: found.${name}) set path;
  getExe = package: "${package}/bin/${package.meta.mainProgram}";
  optionalString = condition: text: if condition then text else "";
  licenses.mit.spdxId = "MIT";
  platforms = {
    linux = [
      "x86_64-linux"
      "aarch64-linux"
    ];
    darwin = [ "aarch64-darwin" ];
  };

  fileset = {
    unions = map (
      path: if pathExists path then path else throw "lib.fileset.unions: ${toString path} does not exist"
    );
    # nixpkgs takes a union, which is a list here; a directory means all in it.
    toSource =
      { root, fileset }:
      let
        within = above: path: path == above || substring 0 (stringLength above + 1) path == "${above}/";
      in
      {
        outPath = builtins.path {
          name = "source";
          path = root;
          filter =
            path: type: any (chosen: within (toString chosen) path || within path (toString chosen)) fileset;
        };
      };
  };
}
