# The NixOS VM tests, by the names of their checks. Each is short: it names hosts,
# the systems that they may get and the node maps, and which scenarios the program
# `scenario` plays with them on the deployer (see ../scenario). The rig plays the same.
{
  pkgs,
  # The programs for a pkgs, as package.nix makes them.
  programs,
}:
let
  play = import ./play.nix { inherit pkgs programs; };
in
pkgs.lib.mapAttrs' (name: file: pkgs.lib.nameValuePair "vm-${name}" (play name (import file { inherit pkgs; }))) {
  two-targets = ./two-targets.nix;
  broken-maps = ./broken-maps.nix;
  recovery = ./recovery.nix;
  verdicts = ./verdicts.nix;
  elevation = ./elevation.nix;
}
