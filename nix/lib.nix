# The library of deploy-ssh for flakes. Builtins only, so it needs no nixpkgs.
let
  inherit (builtins)
    attrNames
    concatStringsSep
    elemAt
    filter
    genList
    hasAttr
    isAttrs
    isList
    isString
    length
    map
    mapAttrs
    toJSON
    typeOf
    ;

  refuse = argument: found: wanted: remedy:
    throw "deploy-ssh.lib.mkNodes: ${argument}: found ${found}; wanted ${wanted}. ${remedy}";

  kind = v: {
    bool = "a boolean";
    float = "a number";
    int = "a number";
    lambda = "a function";
    list = "a list";
    null = "null";
    path = "a Nix path";
    set = if (v.type or null) == "derivation" then "a package" else "an attribute set";
    string = "a string";
  }.${typeOf v} or "a ${typeOf v}";
  check = import ./check.nix;
  nodePath = name: "nodes." + (if builtins.match "[a-zA-Z0-9_$-]+" name != null then name else toJSON name);

  names = list: if list == [ ] then "none" else concatStringsSep ", " list;

  # Settings whose options are checked when they are read: an item of another
  # form is refused here, so that it is the evaluation that fails.
  checked =
    where: ssh:
    if isAttrs ssh && isList (ssh.options or null) then
      ssh
      // {
        options = genList (
          i:
          let
            item = elemAt ssh.options i;
            place = "${where}.options[${toString i}]";
          in
          if !isString item then
            refuse place (kind item) check.definitions.option.description "Write it as a string"
          else if !check.matches "option" item then
            refuse place (check.shown item) check.definitions.option.description "Write \"Port=2222\", say"
          else if check.refused item != null then
            refuse place (check.shown item) "an option that the program doesn't set itself" "Remove it: ${check.refused item}"
          else
            item
        ) (length ssh.options);
      }
    else
      ssh;
  withChecked = where: settings: if settings ? ssh then settings // { ssh = checked "${where}.ssh" settings.ssh; } else settings;

  systems = [
    "x86_64-linux"
    "aarch64-linux"
    "x86_64-darwin"
    "aarch64-darwin"
  ];

  arguments = [
    "nixosConfigurations"
    "nodes"
    "defaults"
    "order"
    "combined"
  ];
in
{
  # Option types for users of the module system, when given nixpkgs' lib.
  types = import ./types.nix;

  # checks makes a flake's checks of a node map, by system:
  #
  #   checks = deploy-ssh.lib.checks self.nodes;
  #
  # A map that the program would refuse fails the evaluation, with all that is
  # wrong with it. No system is evaluated, and what is built is a line of text.
  checks =
    map:
    let
      contract = import ./contract.nix {
        toplevels = "none";
        include = null;
        exclude = [ ];
      } map;
      problems = (import ./validate.nix).contract contract;
      lines = builtins.map (p: "\n  ${if p.path == "" then "" else "${p.path}: "}${p.text}") problems;
      check =
        system:
        derivation {
          name = "deploy-ssh-nodes";
          inherit system;
          builder = "/bin/sh";
          args = [
            "-c"
            "echo 'nodes: ${toString (length contract.nodes)}' > $out"
          ];
        };
    in
    if problems != [ ] then
      throw "deploy-ssh.lib.checks: the node map is refused:${concatStringsSep "" lines}"
    else
      builtins.listToAttrs (
        builtins.map (name: {
          inherit name;
          value.deploy-ssh-nodes = check name;
        }) systems
      );

  # mkNodes makes a node map for `deploy-ssh .#nodes`.
  #
  #   nixosConfigurations   the systems by name, as in the flake's output
  #   nodes                 settings by node name (host, tags, ssh, elevate, expect,
  #                         ignoreUnits, toplevel), or a list of nodes, each with
  #                         its `name`, in deploy order
  #   defaults              shared settings: { ssh = { user, key, options }; elevate }
  #   order                 the node names in deploy order, when `nodes` is no list
  #   combined              one system of all nodes, for --combined: a configuration, a
  #                         derivation, a store path, or the name of a configuration,
  #                         which is then no node
  #
  # A node without `toplevel` takes the configuration of its name. With a list,
  # just the nodes in it are deployed; else every configuration is a node.
  # No system is evaluated here. An item of `options` that isn't a bare Key=Value
  # fails when it is read.
  mkNodes =
    args:
    let
      given =
        if !isAttrs args then
          refuse "its argument" (kind args) "an attribute set" "Write mkNodes { nixosConfigurations = self.nixosConfigurations; }"
        else
          let
            unknown = filter (name: !(builtins.elem name arguments)) (attrNames args);
          in
          if unknown != [ ] then
            refuse "its argument" "the unknown ${names unknown}" "only ${names arguments}" "Remove it or correct its spelling"
          else if !(args ? nodes || args ? nixosConfigurations) then
            refuse "its argument" "neither `nodes` nor `nixosConfigurations`" "one of them or both" "Add nixosConfigurations = self.nixosConfigurations"
          else
            args;

      configurations =
        let
          v = given.nixosConfigurations or { };
        in
        if isAttrs v && (v.type or null) != "derivation" then
          v
        else
          refuse "nixosConfigurations" (kind v) "an attribute set of NixOS configurations by name" "Write nixosConfigurations = self.nixosConfigurations";

      complete =
        where: name: node:
        if !isAttrs node || (node.type or null) == "derivation" then
          refuse where (kind node) "the settings of a node, an attribute set" "Write { host = \"…\"; ssh = { … }; }, and a system as its `toplevel`"
        else if node ? toplevel then
          withChecked where node
        else if node ? config then
          node
        else if hasAttr name configurations then
          withChecked where node // { toplevel = configurations.${name}; }
        else
          refuse where "no `toplevel` and no configuration of this name (there are: ${names (attrNames configurations)})"
            "one of the two"
            "Add `toplevel`, or correct the name";

      nodes =
        let
          v = given.nodes or { };
        in
        if isList v then
          genList (
            i:
            let
              node = elemAt v i;
            in
            if !isAttrs node || !isString (node.name or null) then
              refuse "nodes[${toString i}]" (if isAttrs node then "a node without `name`" else kind node) "a node with a name" "Write { name = \"…\"; … }"
            else
              complete (nodePath node.name) node.name node
          ) (length v)
        else if isAttrs v && (v.type or null) != "derivation" then
          mapAttrs (name: _: complete (nodePath name) name (v.${name} or { })) (
            (if combinedName == null then configurations else builtins.removeAttrs configurations [ combinedName ]) // v
          )
        else
          refuse "nodes" (kind v) "an attribute set by node name, or a list of nodes" "Write nodes = { web.host = \"…\"; }";
      # The name of a configuration; null where there is none.
      combinedName =
        let
          v = given.combined or null;
        in
        if !isString v || builtins.substring 0 1 v == "/" then
          null
        else if hasAttr v configurations then
          v
        else
          refuse "combined" (toJSON v) "a system, or the name of a configuration (there are: ${names (attrNames configurations)})" "Correct the name";
    in
    {
      inherit nodes;
      defaults =
        let
          v = given.defaults or { };
        in
        if isAttrs v && (v.type or null) != "derivation" then withChecked "defaults" v else v;
    }
    // (if given ? order then { inherit (given) order; } else { })
    // (
      if given ? combined then
        { combined = if combinedName == null then given.combined else configurations.${combinedName}; }
      else
        { }
    );
}
