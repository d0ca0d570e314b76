# Checks of arguments. Every message names the function, the argument, what was
# found, what was wanted, and what to do.
let
  inherit (builtins) attrNames concatStringsSep elem filter hasAttr head isAttrs map match substring typeOf;

  show =
    value:
    if value == null then
      "null"
    else if elem (typeOf value) [ "string" "int" "float" "bool" ] then
      "${typeOf value} ${builtins.toJSON value}"
    else
      "a ${typeOf value}";

  # The allowed name that begins like the one found, as a guess at what was meant.
  guess =
    allowed: name:
    let
      start = substring 0 3 name;
      near = filter (candidate: substring 0 3 candidate == start) allowed;
    in
    if near == [ ] then "Allowed are: ${concatStringsSep ", " allowed}." else "Did you mean '${head near}'?";
in
rec {
  refuse =
    { function, argument, found, wanted, remedy }:
    throw "toplevels.${function}: argument '${argument}' is ${found}, but ${wanted} is wanted. ${remedy}";

  # known FUNCTION ARGUMENT ALLOWED GIVEN: GIVEN, when it is a set of ALLOWED names.
  # With the argument "", GIVEN are the arguments of the function itself.
  known =
    function: argument: allowed: given:
    let
      unknown = filter (name: !elem name allowed) (attrNames given);
    in
    if !isAttrs given then
      refuse {
        inherit function argument;
        found = show given;
        wanted = "a set";
        remedy = "Write '${argument} = { ... };'.";
      }
    else if unknown != [ ] then
      throw "toplevels.${function}: unknown argument '${
        if argument == "" then "" else argument + "."
      }${head unknown}'. ${guess allowed (head unknown)}"
    else
      given;

  # type FUNCTION ARGUMENT TYPES VALUE: VALUE, when its type is one of TYPES.
  type =
    function: argument: types: value:
    if elem (typeOf value) types then
      value
    else
      refuse {
        inherit function argument;
        found = show value;
        wanted = "a value of type ${concatStringsSep " or " types}";
        remedy = "Change '${argument}' where ${function} is called.";
      };

  # oneOf FUNCTION ARGUMENT CHOICES VALUE: VALUE, when it is one of CHOICES (or null).
  oneOf =
    function: argument: choices: value:
    if value == null || elem value choices then
      value
    else
      refuse {
        inherit function argument;
        found = show value;
        wanted = "one of ${concatStringsSep ", " choices}";
        remedy = "Leave it out for the usual behaviour.";
      };

  # matching FUNCTION ARGUMENT PATTERN MEANING VALUE: VALUE, when it is a string that matches.
  matching =
    function: argument: pattern: meaning: value:
    if builtins.isString value && match pattern value != null then
      value
    else
      refuse {
        inherit function argument;
        found = show value;
        wanted = meaning;
        remedy = "It must match ${pattern}.";
      };
}
