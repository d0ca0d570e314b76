# The pieces of nixpkgs' lib that this project uses, with nixpkgs' meaning.
let
  inherit (builtins)
    any
    attrNames
    concatLists
    concatMap
    isAttrs
    isFunction
    isList
    listToAttrs
    map
    match
    pathExists
    removeAttrs
    stringLength
    substring
    toString
    ;
in
rec {
  nameValuePair = name: value: { inherit name value; };
  genAttrs = names: f: listToAttrs (map (name: nameValuePair name (f name)) names);
  mapAttrs' = f: set: listToAttrs (map (name: f name set.${name}) (attrNames set));
  mkForce = content: {
    _type = "override";
    inherit content;
  };
  getExe = package: "${package}/bin/${package.meta.mainProgram}";
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

  # Not of nixpkgs' lib: modules without options. Sets are merged, lists are
  # joined, and other values must be defined once or be the same.
  evaluate =
    { modules, args }:
    let
      all = concatMap collect modules;
      collect =
        module:
        let
          set =
            if isFunction module then
              module (builtins.intersectAttrs (builtins.functionArgs module) (args // { inherit extendModules; }))
            else
              module;
        in
        concatLists (map collect (set.imports or [ ])) ++ [ (removeAttrs set [ "imports" ]) ];
      extendModules = more: {
        config = evaluate {
          modules = modules ++ more.modules;
          inherit args;
        };
      };
    in
    merge [ ] all;

  merge =
    path: values:
    let
      forced = builtins.filter (value: isAttrs value && value._type or null == "override") values;
      first = builtins.head values;
      plain = set: isAttrs set && set.type or null != "derivation";
    in
    if forced != [ ] then
      (builtins.head forced).content
    else if builtins.length values == 1 && !(plain first) then
      first
    else if builtins.all plain values then
      builtins.mapAttrs (name: merge (path ++ [ name ])) (builtins.zipAttrsWith (_: found: found) values)
    else if builtins.all isList values then
      concatLists values
    else if builtins.all (value: value == first) values then
      first
    else
      throw "the option ${builtins.concatStringsSep "." path} is defined in two ways";
}
