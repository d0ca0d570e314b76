# A stand-in for nixpkgs, so that flake.nix and the VM tests can be evaluated
# where nixpkgs can't be had.
#
# What it is: every function of nixpkgs that this project calls, with real
# derivations, real files and a merge of modules that is right for plain values.
# What it shows: the expressions evaluate, attributes that are read exist, files
# that are named are there, and what the test scripts and descriptions say.
#
# What it isn't: nixpkgs. Its module system knows options that modules declare, but none
# of NixOS's: it can't tell that one of those is misspelt or has another type. Nothing
# that it makes can be built into anything that runs. A pass here is no VM test.
{
  outputs =
    { self }:
    let
      lib = import ./lib.nix // {
        nixosSystem =
          { system, modules }:
          (import ./packages.nix { inherit lib system; }).machine "unnamed" { } { imports = modules; };
      };
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" ] (
        system: import ./packages.nix { inherit lib system; }
      );
    };
}
