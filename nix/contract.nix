# The node map as people write it, turned into the contract that the program reads.
#
# This is the text of `nix eval --json REF --apply`, so it stands alone:
# builtins only, no import (--apply can read no file), any Nix from 2.8 on.
#
# It promises three things:
# - nothing is built, and a toplevel is forced only when its node was selected;
# - what was written wrongly comes back in `problems`, all of it at once,
#   instead of as an error in the middle of the first one;
# - an attribute that nobody knows comes back by name with the value null,
#   never forced, so that the schema refuses it by name.
{
  # "none": names, order and settings only, no toplevel is forced.
  # "caught": a toplevel that throws is marked `evalFailed`; the others count.
  # "strict": a toplevel that throws is Nix's own error.
  toplevels,
  # Which nodes: null for all, else a list of selectors. A string is a node's name;
  # { text, all } selects what matches every one of its terms, which are
  # { text, exact }, { text, name } or { text, tag }: exact is a node's name, name and
  # tag are POSIX extended regular expressions.
  include,
  # Which nodes not; the same kind of list.
  exclude,
  # Names of nodes whose toplevel is given elsewhere and so never forced.
  elsewhere ? [ ],
  # The map's `combined` is wanted, in place of any node's toplevel.
  combined ? false,
}:
value:
let
  inherit (builtins)
    all
    any
    attrNames
    attrValues
    concatMap
    deepSeq
    elem
    elemAt
    filter
    genList
    getContext
    groupBy
    hasAttr
    head
    isAttrs
    isList
    isString
    length
    listToAttrs
    map
    mapAttrs
    match
    removeAttrs
    storeDir
    stringLength
    substring
    tail
    toJSON
    tryEval
    typeOf
    unsafeDiscardStringContext
    ;

  # What people write, and what this expression adds to it.
  mapFields = [
    "nodes"
    "defaults"
    "order"
    "combined"
  ];
  mapResults = [
    "version"
    "ordered"
    "unmatched"
    "problems"
  ];
  nodeFields = [
    "name"
    "host"
    "toplevel"
    "tags"
    "ssh"
    "elevate"
    "expect"
    "ignoreUnits"
  ];
  expectFields = [
    "machineId"
    "hostName"
  ];
  nodeResults = [
    "selected"
    "drvPath"
    "system"
    "evalFailed"
    "problem"
  ];
  # Beside `ssh`.
  defaultFields = [ "elevate" ];
  sharedFields = [
    "user"
    "key"
    "options"
  ];
  sshFields = sharedFields ++ [
    "host"
    "hostKey"
  ];

  isDerivation = v: isAttrs v && (v.type or null) == "derivation";
  # Only the shape is looked at, because `config` is expensive and may throw;
  # where there are no `options` it is a hand-written set, and cheap.
  isConfiguration =
    v: isAttrs v && v ? config && !(v ? toplevel) && !isDerivation v && (v ? options || v.config ? system);

  # What a person would call the value.
  kind =
    v:
    if isDerivation v then
      "a package" + (if isString (v.name or null) then " (${unsafeDiscardStringContext v.name})" else "")
    else if isConfiguration v then
      "a NixOS configuration"
    else
      {
        bool = "a boolean";
        float = "a number";
        int = "a number";
        lambda = "a function";
        list = "a list";
        null = "null";
        path = "a Nix path";
        set = "an attribute set";
        string = "a string";
      }
      .${typeOf v} or "a value of type ${typeOf v}";

  # A value as JSON can carry it without copying anything to the store.
  # What has no such form is replaced by a note of what it is.
  scalar =
    v:
    if isString v then
      unsafeDiscardStringContext v
    else if
      elem (typeOf v) [
        "bool"
        "float"
        "int"
        "null"
      ]
    then
      v
    else
      { "$nix" = kind v; };
  plain = v: if isList v then map scalar v else scalar v;

  # An attribute set with its known fields; unknown ones by name.
  fields =
    known: v:
    if isAttrs v && !isDerivation v then
      mapAttrs (name: field: if elem name known then plain field else null) v
    else
      plain v;

  # Problems are { path, text }, the path as `nodes.web.toplevel`.
  problem = path: text: { inherit path text; };
  nodePath = name: "nodes." + (if match "[a-zA-Z0-9_$-]+" name != null then name else toJSON name);

  # A set that tells which texts are in a list.
  setOf =
    texts:
    listToAttrs (
      map (name: {
        inherit name;
        value = null;
      }) texts
    );

  wanted = "wanted a node map: a list of nodes, an attribute set of nodes by name, or an attribute set with `nodes`";

  # -- the map ---------------------------------------------------------------

  hasNodes = isAttrs value && value ? nodes;
  given = if hasNodes then value.nodes else value;
  hasOrder = hasNodes && (value.order or null) != null;
  ordered = isList given || hasOrder;

  mapProblems =
    if isDerivation value || isConfiguration value || !(isList value || isAttrs value) then
      [ (problem "" "found ${kind value}; ${wanted}") ]
    else if !hasNodes && isAttrs value && (value ? defaults || value ? order) then
      [ (problem "" "found `${if value ? defaults then "defaults" else "order"}` but no `nodes`; ${wanted}") ]
    else if isDerivation given || isConfiguration given || !(isList given || isAttrs given) then
      [ (problem "nodes" "found ${kind given}; wanted a list of nodes, or an attribute set of nodes by name") ]
    else if (if isList given then given == [ ] else attrNames given == [ ]) then
      [ (problem (if hasNodes then "nodes" else "") "there are no nodes; ${wanted}") ]
    else if hasNodes then
      map (name: problem name "this field is the program's own result, not an input; remove it") (
        filter (name: hasAttr name value) mapResults
      )
    else
      [ ];
  isMap = all (p: p.path != "" && p.path != "nodes") mapProblems;

  # -- the nodes as { name, path, place, node, problems } -----------------------

  entry = name: path: node: {
    inherit name path node;
    problems = [ ];
  };
  broken = path: text: {
    inherit path;
    problems = [ (problem path text) ];
  };
  isNode = v: isAttrs v && !isDerivation v;

  fromList = genList (
    i:
    let
      node = elemAt given i;
      place = "nodes[${toString i}]";
    in
    if !isNode node || isConfiguration node then
      broken place "found ${kind node}; wanted a node: { name = \"…\"; toplevel = …; }"
    else if !(node ? name) then
      broken place "the node has no `name`; a list entry needs one: { name = \"…\"; toplevel = …; }"
    else if !isString node.name then
      broken "${place}.name" "found ${kind node.name}; wanted a string"
    else
      entry (unsafeDiscardStringContext node.name) (nodePath (unsafeDiscardStringContext node.name)) node // { inherit place; }
  ) (length given);

  fromAttrs = map (
    name:
    let
      node = given.${name};
      path = nodePath name;
    in
    if !isNode node then
      broken path "found ${kind node}; wanted a node: { toplevel = …; }, or a NixOS configuration"
    else if !isConfiguration node && (node.name or null) != null && node.name != name then
      broken "${path}.name" "found ${
        if isString node.name then toJSON node.name else kind node.name
      }; the attribute's name is the node's name; remove the field"
    else
      entry name path node // { place = path; }
  );

  # An order that names every node once; anything else is a problem and by name.
  names = attrNames given;
  order = if hasOrder then value.order else names;
  orderProblems =
    if !hasOrder then
      [ ]
    else if isList given then
      [ (problem "order" "`nodes` is a list, which has an order already; remove `order`") ]
    else if !isList order || !all isString order then
      [ (problem "order" "found ${if isList order then "a list of other things" else kind order}; wanted a list of node names") ]
    else
      concatMap (
        name:
        if hasAttr name inOrder then
          [ ]
        else
          [ (problem "order" "the node ${toJSON name} is missing; `order` names every node once") ]
      ) names
      ++ concatMap (
        name: if hasAttr name given then [ ] else [ (problem "order" "there is no node ${toJSON name}") ]
      ) order
      ++ (
        if length order == length (attrNames inOrder) then
          [ ]
        else
          [ (problem "order" "a node is named twice; `order` names every node once") ]
      );
  inOrder = setOf order;

  entries =
    if !isMap then
      [ ]
    else if isList given then
      fromList
    else
      fromAttrs (if orderProblems == [ ] then order else names);
  sound = filter (entry: entry.problems == [ ]) entries;

  # Names that are used twice, in lists; each after the first is a problem.
  duplicates = concatMap (
    same:
    map (
      entry:
      problem entry.place "the name ${toJSON entry.name} is taken by ${(head same).place}; every node has its own name"
    ) (tail same)
  ) (attrValues (groupBy (entry: entry.name) sound));

  # -- selection ---------------------------------------------------------------

  tagsOf =
    entry:
    let
      tags = entry.node.tags or [ ];
    in
    if isConfiguration entry.node || !isList tags then [ ] else filter isString tags;
  # Plain names are looked up, so that many of them cost little.
  anyOf = selectors: rec {
    names = setOf (filter isString selectors);
    others = filter (selector: !isString selector) selectors;
    matches = entry: hasAttr entry.name names || any (matchesAll entry) others;
  };
  matchesAll = entry: selector: all (matchesTerm entry) selector.all;
  matchesTerm =
    entry: term:
    if term ? exact then
      entry.name == term.exact
    else if term ? tag then
      any (tag: match term.tag tag != null) (tagsOf entry)
    else
      match term.name entry.name != null;
  included = anyOf include;
  excluded = anyOf exclude;
  selected = entry: (include == null || included.matches entry) && !excluded.matches entry;
  known = setOf (map (entry: entry.name) sound);
  # What matches no node is misspelt, also within an exclusion.
  unmatchedTerms =
    selector:
    if isString selector then
      if hasAttr selector known then [ ] else [ selector ]
    else
      map (term: term.text) (filter (term: !any (entry: matchesTerm entry term) sound) selector.all);
  # Known tags that no node has together select nothing; excluding nothing is no fault.
  unmatchedSelector =
    selector:
    let
      terms = unmatchedTerms selector;
    in
    if terms == [ ] && !isString selector && !any (entry: matchesAll entry selector) sound then [ selector.text ] else terms;
  unmatched =
    concatMap unmatchedSelector (if include == null then [ ] else include) ++ concatMap unmatchedTerms exclude;

  # -- toplevels ---------------------------------------------------------------

  isStorePath =
    text:
    substring 0 (stringLength storeDir + 1) text == "${storeDir}/"
    && match "[0-9a-z]{32}-[0-9a-zA-Z+._?=-]+" (substring (stringLength storeDir + 1) (-1) text) != null;

  readDerivation = drv: {
    toplevel = unsafeDiscardStringContext drv.outPath;
    drvPath = unsafeDiscardStringContext drv.drvPath;
    system = plain (drv.system or null);
  };
  # The text of a store path remembers the derivation that it comes from.
  readText =
    text:
    let
      context = getContext text;
      origins = filter (path: context.${path} ? outputs) (attrNames context);
    in
    {
      toplevel = unsafeDiscardStringContext text;
      drvPath = if length origins == 1 then unsafeDiscardStringContext (elemAt origins 0) else null;
      system = null;
    };
  readToplevel =
    v:
    if isDerivation v then
      readDerivation v
    else if isConfiguration v then
      if !(v.config ? system.build.toplevel) then
        throw "the NixOS configuration has no config.system.build.toplevel"
      else if isDerivation v.config.system.build.toplevel then
        readDerivation v.config.system.build.toplevel
      else
        { problem = "config.system.build.toplevel is ${kind v.config.system.build.toplevel}; wanted a derivation"; }
    else if isString v && isStorePath v then
      readText v
    else
      {
        problem = "found ${
          if isString v then "the string ${toJSON (unsafeDiscardStringContext v)}" else kind v
        }; wanted a system: a derivation, a NixOS configuration, or a store path ${storeDir}/…";
      };

  forced =
    wanted: v:
    let
      result = readToplevel v;
      # tryEval catches throw and assert; abort and type errors it can't.
      attempt = tryEval (deepSeq result result);
    in
    if toplevels == "none" || !wanted then
      { }
    else if toplevels == "strict" then
      result
    else if attempt.success then
      attempt.value
    else
      { evalFailed = true; };
  forcedOf =
    entry:
    forced (!combined && selected entry && !(elem entry.name elsewhere) && hasToplevel entry) (
      if isConfiguration entry.node then entry.node else entry.node.toplevel
    );
  # Where all nodes go into one system, they need none of their own.
  hasCombined = isMap && hasNodes && value ? combined;
  needsNone = hasCombined && (combined || toplevels == "none");
  # Not looked at unless it is asked for: it may not even be there to be looked at.
  noCombined = !hasCombined || combined && toplevels != "none" && value.combined == null;
  forcedCombined = if noCombined then { } else forced combined value.combined;
  hasToplevel = entry: isConfiguration entry.node || entry.node ? toplevel;

  # -- a node as the contract has it ---------------------------------------------

  settings =
    node:
    if isConfiguration node then
      { }
    else
      fields nodeFields (
        removeAttrs node (
          [
            "toplevel"
            "ssh"
            "expect"
          ]
          ++ nodeResults
        )
      )
      // (if node ? ssh then { ssh = fields sshFields node.ssh; } else { })
      // (if node ? expect then { expect = fields expectFields node.expect; } else { });
  finished = map (
    entry:
    let
      evaluated = forcedOf entry;
    in
    {
      problems =
        (if hasToplevel entry || needsNone then [ ] else [ (problem entry.path "the node has no `toplevel`; add its system: a derivation, a NixOS configuration, or a store path") ])
        ++ (if evaluated ? problem then [ (problem "${entry.path}.toplevel" evaluated.problem) ] else [ ])
        ++ (
          if isConfiguration entry.node then
            [ ]
          else
            map (name: problem "${entry.path}.${name}" "this field is the program's own result, not an input; remove it") (
              filter (name: hasAttr name entry.node) nodeResults
            )
        );
      node =
        settings entry.node
        // {
          inherit (entry) name;
          selected = selected entry;
        }
        // removeAttrs evaluated [ "problem" ];
    }
  ) sound;
in
(if isMap && hasNodes then fields [ ] (removeAttrs value (mapFields ++ mapResults)) else { })
// {
  version = 1;
  inherit ordered unmatched;
  defaults =
    if !(isMap && hasNodes && (value.defaults or null) != null) then
      { }
    else if isAttrs value.defaults && !isDerivation value.defaults && value.defaults ? ssh then
      fields defaultFields (removeAttrs value.defaults [ "ssh" ])
      // {
        ssh = fields sharedFields value.defaults.ssh;
      }
    else
      fields defaultFields value.defaults;
  nodes = map (entry: entry.node) finished;
  # null where there is none; empty where it was not asked for.
  combined = if noCombined then null else removeAttrs forcedCombined [ "problem" ];
  problems =
    mapProblems
    ++ (if isMap then orderProblems else [ ])
    ++ concatMap (entry: entry.problems) entries
    ++ duplicates
    ++ concatMap (entry: entry.problems) finished
    ++ (if forcedCombined ? problem then [ (problem "combined" forcedCombined.problem) ] else [ ]);
}
