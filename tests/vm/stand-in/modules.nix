# A stand-in for nixpkgs' module system: options with types, definitions with
# conditions and priorities. What no module declares is merged without a type, for
# the options of NixOS are unknown here.
let
  inherit (builtins)
    all
    any
    attrNames
    concatLists
    concatMap
    concatStringsSep
    elem
    filter
    foldl'
    functionArgs
    head
    intersectAttrs
    isAttrs
    isBool
    isFunction
    isInt
    isList
    isString
    length
    listToAttrs
    map
    mapAttrs
    removeAttrs
    toJSON
    zipAttrsWith
    ;

  typed = type: value: isAttrs value && value._type or null == type;
  showOption = concatStringsSep ".";
  genList = n: f: builtins.genList f n;

  # -- properties -------------------------------------------------------------

  override = priority: content: {
    _type = "override";
    inherit priority content;
  };
  mkIf = condition: content: {
    _type = "if";
    inherit condition content;
  };
  mkMerge = contents: {
    _type = "merge";
    inherit contents;
  };

  # Definitions without conditions, for values of one option.
  discharge =
    value:
    if typed "if" value then
      (if value.condition then discharge value.content else [ ])
    else if typed "merge" value then
      concatMap discharge value.contents
    else
      [ value ];
  # Those of the highest priority, which is the lowest number.
  strongest =
    values:
    let
      priority = value: if typed "override" value then value.priority else 100;
      best = foldl' (a: b: if b < a then b else a) 10000 (map priority values);
    in
    map (value: if typed "override" value then value.content else value) (
      filter (value: priority value == best) values
    );
  # Sets of definitions, their conditions moved inwards: which names there are is
  # known without any condition being asked.
  pushDown =
    value:
    if typed "if" value then
      map (mapAttrs (_: content: mkIf value.condition content)) (pushDown value.content)
    else if typed "merge" value then
      concatMap pushDown value.contents
    else
      [ value ];

  # -- modules ----------------------------------------------------------------

  collect =
    args: module:
    let
      set =
        if isFunction module then
          module (intersectAttrs (functionArgs module) args)
        else if isAttrs module then
          module
        else
          import module;
    in
    if isFunction set then
      collect args set
    else
      concatMap (collect args) (set.imports or [ ])
      ++ [
        (
          if set ? config || set ? options then
            {
              options = set.options or { };
              config = set.config or { };
            }
          else
            {
              options = { };
              config = removeAttrs set [ "imports" ];
            }
        )
      ];

  # Options of several modules; one that two declare has a type that both agree on.
  mergeOptions =
    path: sets:
    zipAttrsWith (
      name: found:
      if all (typed "option") found then
        (
          if length found > 1 then
            throw "the option ${showOption (path ++ [ name ])} is declared twice"
          else
            head found
        )
      else if any (typed "option") found then
        throw "the option ${showOption (path ++ [ name ])} has options below it"
      else
        mergeOptions (path ++ [ name ]) found
    ) sets;

  # The value of an option from its definitions.
  valueOf =
    path: option: values:
    let
      defined = strongest (
        concatMap discharge values ++ (if option ? default then [ (override 1500 option.default) ] else [ ])
      );
      wrong = filter (value: !option.type.check value) defined;
    in
    if option.readOnly or false && length (concatMap discharge values) > 1 then
      throw "The option `${showOption path}' is read-only, but it's set multiple times."
    else if defined == [ ] then
      throw "The option `${showOption path}' was accessed but has no value defined. Try setting the option."
    else if wrong != [ ] then
      throw "A definition for option `${showOption path}' is not of type `${option.type.description}'. Definition: ${shown (head wrong)}"
    else
      option.type.merge path (
        map (value: {
          inherit value;
          file = "<unknown-file>";
        }) defined
      );
  shown = value: if builtins.isPath value then toString value else if isFunction value then "<function>" else if isAttrs value then "<set>" else toJSON value;

  # The configuration under a tree of options. Without options, a definition is of
  # no known type: it is merged as plain values are.
  configuration =
    {
      strict,
      path,
      options,
      definitions,
    }:
    let
      sets = concatMap pushDown definitions;
      found = zipAttrsWith (_: values: values) sets;
      unknown = removeAttrs found (attrNames options ++ [ "_module" ]);
    in
    if strict && unknown != { } then
      throw "The option `${showOption (path ++ [ (head (attrNames unknown)) ])}' does not exist."
    else
      mapAttrs (name: values: merge (path ++ [ name ]) values) unknown
      // mapAttrs (
        name: option:
        let
          here = path ++ [ name ];
          values = found.${name} or [ ];
        in
        if typed "option" option then
          valueOf here option values
        else
          configuration {
            inherit strict;
            path = here;
            options = option;
            definitions = values;
          }
      ) options;

  merge =
    path: values:
    let
      defined = strongest (concatMap discharge values);
      first = head defined;
      plain = set: isAttrs set && set.type or null != "derivation";
    in
    if defined == [ ] then
      { }
    else if length defined == 1 && !(plain first) then
      first
    else if all plain defined then
      mapAttrs (name: merge (path ++ [ name ])) (zipAttrsWith (_: found: found) defined)
    else if all isList defined then
      concatLists defined
    else if all (value: value == first) defined then
      first
    else
      throw "the option ${showOption path} is defined in two ways";

  evaluate =
    {
      modules,
      specialArgs ? { },
      path ? [ ],
    }:
    let
      # As in nixpkgs: with a free form, options need not be declared.
      strict = !(any (module: module.config ? _module.freeformType) collected);
      args = specialArgs // {
        inherit lib extendModules;
        inherit (result) config options;
      };
      collected = concatMap (collect args) modules;
      extendModules =
        more:
        evaluate {
          modules = modules ++ more.modules;
          inherit specialArgs path;
        };
      result = {
        options = mergeOptions path (map (module: module.options) collected);
        config = configuration {
          inherit strict path;
          inherit (result) options;
          definitions = map (module: module.config) collected;
        };
        inherit extendModules;
      };
    in
    result;

  # -- types ------------------------------------------------------------------

  mkOptionType =
    type:
    {
      _type = "option-type";
      description = type.name;
      check = _: true;
      merge = mergeEqualOption;
      getSubOptions = _: { };
    }
    // type;
  mergeOneOption =
    path: definitions:
    if length definitions == 1 then
      (head definitions).value
    else
      throw "The option `${showOption path}' is defined multiple times while it's expected to be unique.";
  mergeEqualOption =
    path: definitions:
    if all (d: d.value == (head definitions).value) definitions then
      (head definitions).value
    else
      throw "The option `${showOption path}' has conflicting definition values.";

  scalar = name: description: check: mkOptionType { inherit name description check; };
  # The value of one element of a container of a type.
  element =
    path: type: values:
    valueOf path { inherit type; } values;

  types = rec {
    bool = scalar "bool" "boolean" isBool;
    str = scalar "str" "string" isString;
    raw = mkOptionType {
      name = "raw";
      description = "raw value";
      merge = mergeOneOption;
    };
    anything = mkOptionType {
      name = "anything";
      merge = path: definitions: merge path (map (d: d.value) definitions);
    };
    lazyAttrsOf = attrsOf;
    nullOr =
      type:
      mkOptionType {
        name = "nullOr";
        description = "null or ${type.description}";
        check = value: value == null || type.check value;
        merge =
          path: definitions:
          if all (d: d.value == null) definitions then
            null
          else
            type.merge path (filter (d: d.value != null) definitions);
        inherit (type) getSubOptions;
      };
    listOf =
      type:
      mkOptionType {
        name = "listOf";
        description = "list of ${type.description}";
        check = isList;
        merge =
          path: definitions:
          concatMap (
            d:
            genList (length d.value) (i: element (path ++ [ "[definition 1-entry ${toString (i + 1)}]" ]) type [ (builtins.elemAt d.value i) ])
          ) definitions;
        getSubOptions = path: type.getSubOptions (path ++ [ "*" ]);
      };
    attrsOf =
      type:
      mkOptionType {
        name = "attrsOf";
        description = "attribute set of ${type.description}";
        check = isAttrs;
        merge =
          path: definitions:
          mapAttrs (name: values: element (path ++ [ name ]) type values) (
            zipAttrsWith (_: values: values) (concatMap (d: pushDown d.value) definitions)
          );
        getSubOptions = path: type.getSubOptions (path ++ [ "<name>" ]);
      };
    either =
      a: b:
      mkOptionType {
        name = "either";
        description = "${a.description} or ${b.description}";
        check = value: a.check value || b.check value;
        merge =
          path: definitions:
          (if all (d: a.check d.value) definitions then a else b).merge path definitions;
        getSubOptions = path: a.getSubOptions path // b.getSubOptions path;
      };
    submodule =
      module:
      mkOptionType {
        name = "submodule";
        description = "submodule";
        check = value: isAttrs value || isFunction value;
        merge =
          path: definitions:
          (evaluate {
            # A definition is no module: it may well have a field `options`.
            modules = [ module ] ++ map (d: if isFunction d.value then d.value else { config = d.value; }) definitions;
            specialArgs.name = builtins.elemAt path (length path - 1);
            inherit path;
          }).config;
        getSubOptions =
          path:
          (evaluate {
            modules = [ module ];
            specialArgs.name = "<name>";
            inherit path;
          }).options;
      };
  };

  lib = {
    inherit
      mkIf
      mkMerge
      mkOptionType
      mergeEqualOption
      mergeOneOption
      types
      ;
    mkOption = option: option // { _type = "option"; };
    mkForce = override 50;
    mkDefault = override 1000;
    evalModules =
      {
        modules,
        specialArgs ? { },
      }:
      evaluate { inherit modules specialArgs; };
  };
in
lib
