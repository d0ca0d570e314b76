# NixOS-shaped toplevels for tests: closures with the files, scripts and
# behaviour that a deployment meets on a NixOS host, but small, without nixpkgs,
# and running on a Debian root. Pure builtins; derivations are built by the
# building machine's /bin/sh, so it needs `sandbox = false`, coreutils and, for
# `web`, openssl.
#
#     toplevels = import ./toplevels { };
#     toplevels.mkToplevel { name = "web1"; web.page = "hello"; }
#
# README.md tells each argument and each fault.
{
  # The machine type that builds, and that the toplevels are for.
  system ? "x86_64-linux",
}:
let
  check = import ./check.nix;

  # Each .nix file beside this one makes one part of a toplevel.
  build = import ./build { inherit system; };
  mkUnits = import ./units.nix { inherit check; };
  mkFaults = import ./faults.nix { inherit check; };
  mkWeb = import ./web.nix { inherit build check; };
  mkToplevel = import ./toplevel.nix {
    inherit build check mkUnits mkFaults mkWeb system;
  };
in
{
  inherit mkToplevel;

  # Toplevels that go wrong before there is a closure. Each takes a name.
  # `throws` can be caught by builtins.tryEval; `aborts` and `typeError` cannot.
  throws = name: throw "the toplevel of ${name} throws, as asked for";
  aborts = name: abort "the toplevel of ${name} aborts, as asked for";
  typeError = name: name + 1;
  unbuildable = name: mkToplevel { inherit name; faults.build = "fails"; };
}
