# A stand-in for nixpkgs, so that flake.nix and the VM tests can be evaluated
# where nixpkgs can't be had.
#
# What it is: every function of nixpkgs that this project calls, with real
# derivations, real files and a merge of modules that is right for plain values.
# What it shows: the expressions evaluate, attributes that are read exist, files
# that are named are there, and what the test scripts and descriptions say.
#
# What it isn't: nixpkgs. It has no options, so it can't tell that an option is
# misspelt or has another type; it knows no priorities but mkForce; nothing that
# it makes can be built into anything that runs. A pass here is no VM test.
{
  outputs =
    { self }:
    let
      lib = import ./lib.nix;
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" ] (
        system: import ./packages.nix { inherit lib system; }
      );
    };
}
