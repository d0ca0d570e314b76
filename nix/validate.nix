# What breaks schema.json, found by Nix itself, so that an evaluation can refuse
# what the program would refuse. Builtins only. It knows the keywords that
# schema.json uses; a test holds it against a real validator.
let
  inherit (builtins)
    attrNames
    concatLists
    concatMap
    concatStringsSep
    elem
    elemAt
    filter
    genList
    hasAttr
    isList
    length
    map
    match
    replaceStrings
    toJSON
    typeOf
    ;
  check = import ./check.nix;
  inherit (check) definitions;

  # JSON Schema's name of a value's type.
  typeName = v: {
    bool = "boolean";
    float = "number";
    int = "integer";
    list = "array";
    null = "null";
    set = "object";
    string = "string";
  }.${typeOf v};

  # What was found, in words; contract.nix replaces what JSON can't hold by a note.
  shown =
    v:
    if typeOf v == "set" then
      v."$nix" or "an attribute set"
    else if typeOf v == "list" then
      "a list"
    else if typeOf v == "string" then
      check.shown v
    else
      toJSON v;

  below = path: name: if path == "" then name else "${path}.${name}";
  problem = path: text: [ { inherit path text; } ];
  types = type: if isList type then type else [ type ];

  # The problems of a value under a schema; rule is the name of the definition
  # that the schema came from.
  problems =
    rule: schema: path: value:
    let
      type = typeName value;
      rightType = !(schema ? type) || elem type (types schema.type);
      wanted = schema.description or "a value of type ${concatStringsSep " or " (types schema.type)}";
      referred = replaceStrings [ "#/$defs/" ] [ "" ] (schema."$ref" or "");
      referral =
        # The rule `text` refuses the character NUL, which no string of Nix holds.
        if referred == "" || referred == "text" then
          [ ]
        else
          problems referred definitions.${referred} path value;
    in
    if !rightType then
      problem path "found ${shown value}; wanted ${wanted}"
    else if type == "string" then
      (
        if schema ? pattern && match schema.pattern value == null then
          problem path "found ${shown value}; wanted ${wanted}"
        else if schema ? not && rule == "option" && check.refused value != null then
          problem path "found ${shown value}; ${check.refused value}"
        else
          [ ]
      )
      ++ referral
    else if type == "array" then
      concatLists (
        genList (i: problems "" (schema.items or { }) "${path}[${toString i}]" (elemAt value i)) (length value)
      )
      ++ referral
    else if type == "object" then
      concatMap (
        name: if hasAttr name value then [ ] else problem path "the field `${name}` is missing"
      ) (schema.required or [ ])
      ++ concatMap (
        name:
        if hasAttr name (schema.properties or { }) then
          problems "" schema.properties.${name} (below path name) value.${name}
        else if !(schema ? additionalProperties) then
          [ ]
        else if schema.additionalProperties == false then
          problem (below path name) "unknown field; known are ${
            concatStringsSep ", " (filter (known: !(schema.properties.${known}.readOnly or false)) (attrNames schema.properties))
          }"
        else
          (if schema ? propertyNames then problems "" schema.propertyNames (below path name) name else [ ])
          ++ problems "" schema.additionalProperties (below path name) value.${name}
      ) (attrNames value)
      ++ referral
    else
      referral;

  nodePath = name: "nodes." + (if match "[a-zA-Z0-9_$-]+" name != null then name else toJSON name);
in
{
  # The problems of a contract, as contract.nix returns it: its own and the
  # schema's, as { path, text }.
  contract =
    contract:
    contract.problems
    ++ problems "contract" definitions.contract "" (contract // { nodes = [ ]; problems = [ ]; })
    ++ concatMap (node: problems "node" definitions.node (nodePath node.name) node) contract.nodes;

  # The problems of a value under a definition of schema.json.
  under = rule: problems rule definitions.${rule} "";
}
