# The check of the modules with nixpkgs' own lib: the evaluation fails where they
# don't make what they should.
{ pkgs }:
let
  inherit (import ./modules.nix { inherit (pkgs) lib; }) tests failed;
  options = import ./options.nix { inherit (pkgs) lib; };
  line =
    name:
    "${name}: got ${builtins.toJSON tests.${name}.got}, want ${builtins.toJSON tests.${name}.want}";
in
if failed != [ ] then
  throw "the modules don't make what they should:\n${builtins.concatStringsSep "\n" (map line failed)}"
else
  pkgs.writeText "deploy-ssh-modules" (builtins.toJSON options)
