# What the patterns of schema.json say about texts. Builtins only.
let
  inherit (builtins)
    elemAt
    fromJSON
    match
    readFile
    replaceStrings
    stringLength
    substring
    toJSON
    ;

  definitions = (fromJSON (readFile ./schema.json))."$defs";

  upper = [ "A" "B" "C" "D" "E" "F" "G" "H" "I" "J" "K" "L" "M" "N" "O" "P" "Q" "R" "S" "T" "U" "V" "W" "X" "Y" "Z" ];
  lower = [ "a" "b" "c" "d" "e" "f" "g" "h" "i" "j" "k" "l" "m" "n" "o" "p" "q" "r" "s" "t" "u" "v" "w" "x" "y" "z" ];
  keyword = item: elemAt (match "([A-Za-z0-9]*).*" item) 0;

  # A wrong text for an error: cut when long, and never a private key.
  shown =
    text:
    if match ".*(PRIVATE KEY|PuTTY-User-Key-File|AGE-SECRET-KEY|b3BlbnNzaC1rZXktdjE).*" text != null then
      "a private key"
    else if stringLength text > 80 then
      toJSON (substring 0 80 text) + "…"
    else
      toJSON text;

  matches = rule: text: match definitions.${rule}.pattern text != null;
in
{
  inherit definitions matches shown;

  # Why an option of an admitted form can't be set; null when it can.
  # This is the `not` of the schema, with the reason.
  refused =
    item:
    if match (definitions.option.not.pattern + ".*") item == null then
      null
    else
      definitions.option."x-refused".${replaceStrings upper lower (keyword item)};

  # Whether a text is admitted under a rule, as the schema has it.
  admits =
    rule: text:
    matches rule text && (!(definitions.${rule} ? not) || match (definitions.${rule}.not.pattern + ".*") text == null);
}
