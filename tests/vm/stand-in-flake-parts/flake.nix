# A stand-in for flake-parts: `mkFlake` with the options that this project's module
# and template use, over nixpkgs' lib or its stand-in.
{
  inputs.nixpkgs-lib.url = "path:../stand-in";

  outputs =
    { self, nixpkgs-lib }:
    let
      inherit (nixpkgs-lib) lib;
      inherit (lib) mkOption types;
    in
    {
      lib.mkFlake =
        { inputs }:
        module:
        let
          inherit
            (lib.evalModules {
              specialArgs = {
                inherit inputs;
                inherit (inputs) self;
              };
              modules = [
                {
                  options = {
                    systems = mkOption { type = types.listOf types.str; };
                    flake = mkOption { type = types.lazyAttrsOf types.raw; };
                    perSystem = mkOption { type = types.raw; };
                  };
                }
                module
              ];
            })
            config
            ;
        in
        config.flake
        // {
          checks = lib.genAttrs config.systems (system: (config.perSystem { inherit system; }).checks);
        };
    };
}
