# What the rig's deployer finds at github:NixOS/nixpkgs: the stand-in of tests/vm, and
# with it systems that the rig's hosts can be switched to. `nixosSystem` reads the
# options that tests need; it is no NixOS. The program is "built" by copying the one
# that is tried.
{
  outputs =
    { self }:
    let
      lib = import ./stand-in/lib.nix;
      toplevels = import ./toplevels { };
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      copied =
        system:
        {
          pname,
          version,
          meta,
          ...
        }:
        derivation {
          name = "${pname}-${version}";
          inherit system;
          builder = "/bin/sh";
          PATH = "/usr/bin:/bin";
          args = [
            "-c"
            "mkdir -p $out/bin && cp /usr/local/lib/deploy-ssh $out/bin/deploy-ssh"
          ];
        }
        // {
          inherit meta pname version;
        };
    in
    {
      lib = lib // {
        nixosSystem =
          { modules, ... }:
          let
            evaluated = lib.evalModules {
              modules = [ { _module.freeformType = lib.types.anything; } ] ++ modules;
            };
          in
          {
            inherit (evaluated) options;
            config = evaluated.config // {
              system.build.toplevel = toplevels.mkToplevel {
                name = evaluated.config.networking.hostName;
                etc = evaluated.config.environment.etc or { };
              };
            };
          };
      };
      legacyPackages = lib.genAttrs systems (
        system:
        let
          pkgs = import ./stand-in/packages.nix { inherit lib system; };
        in
        pkgs
        // {
          callPackages =
            file: _:
            let
              f = import file;
            in
            f (
              builtins.intersectAttrs (builtins.functionArgs f) (
                pkgs
                // {
                  buildGoModule = copied system;
                  buildGo126Module = copied system;
                }
              )
            );
        }
      );
    };
}
