# The derivations of a toplevel. Scripts are taken from the folders beside, and
# run by the building machine's /bin/sh.
{ system }:
let
  inherit (builtins) attrNames concatStringsSep genList elemAt getAttr length listToAttrs map toString;

  run =
    name: script: attributes:
    derivation (
      {
        inherit name system;
        builder = "/bin/sh";
        args = [ "-eu" script ];
        PATH = "/usr/bin:/bin:/usr/sbin:/sbin";
        LC_ALL = "C";
        # built where it is wanted: there is no machine with more to offer
        preferLocalBuild = true;
        allowSubstitutes = true;
      }
      // attributes
    );

  # files: { path = text; } as attributes of a derivation whose script gets
  # $files, lines of "VARIABLE PATH", and each text in the file $VARIABLEPath.
  texts =
    files:
    let
      paths = attrNames files;
      variable = i: "file${toString i}";
      indices = genList (i: i) (length paths);
    in
    listToAttrs (map (i: { name = variable i; value = getAttr (elemAt paths i) files; }) indices)
    // {
      passAsFile = map variable indices;
      files = concatStringsSep "\n" (map (i: "${variable i} ${elemAt paths i}") indices);
    };
in
{
  inherit run;

  # tree NAME { files; links; scripts }: a folder of texts, symbolic links
  # (path -> target), and texts that are executable.
  tree =
    name:
    { files ? { }, links ? { }, scripts ? { } }:
    run name ./tree.sh (
      texts (files // scripts)
      // {
        links = concatStringsSep "\n" (map (path: "${path} ${links.${path}}") (attrNames links));
        executable = concatStringsSep "\n" (attrNames scripts);
      }
    );

  host = builtins.path {
    path = ../host;
    name = "toplevel-host";
  };
}
