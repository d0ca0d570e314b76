{
  description = "NixOS-shaped toplevels for tests, with one of each fault";
  # no inputs: it evaluates offline
  outputs =
    { self }:
    let
      toplevels = import ./. { };
      inherit (toplevels) mkToplevel;
    in
    {
      lib = toplevels;

      # Two systems to switch between.
      nodes = {
        one = mkToplevel {
          name = "one";
          web.page = "one\n";
        };
        two = mkToplevel {
          name = "two";
          web.page = "two\n";
        };
      };

      # One system for each way to go wrong.
      faults = import ./examples-of-faults.nix toplevels;
    };
}
