{
  description = "Updates NixOS hosts over SSH";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      linux = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      # The program is built for it, but nobody has deployed from one yet.
      darwin = [ "aarch64-darwin" ];
      each = systems: f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
      programs = pkgs: pkgs.callPackages ./package.nix { };
    in
    {
      # mkNodes: a node map from nixosConfigurations. checks: a flake's checks of one.
      lib = import ./nix/lib.nix;

      # For hosts: a user to log in as, its rights, the node entry that fits.
      nixosModules.target.imports = [ ./nix/target.nix ];
      nixosModules.default = self.nixosModules.target;

      # For flake-parts: `deploy-ssh.nodes` becomes the node map.
      flakeModules.default.imports = [ ./nix/flake-module.nix ];

      overlays.default = final: _: { inherit (programs final) deploy-ssh; };

      templates = {
        default = {
          path = ./templates/default;
          description = "NixOS hosts, deployed over SSH";
        };
        flake-parts = {
          path = ./templates/flake-parts;
          description = "NixOS hosts, deployed over SSH, with flake-parts";
        };
      };

      packages = each (linux ++ darwin) (pkgs: rec {
        inherit (programs pkgs) deploy-ssh;
        default = deploy-ssh;
      });

      apps = each (linux ++ darwin) (pkgs: {
        default = {
          type = "app";
          program = nixpkgs.lib.getExe (programs pkgs).deploy-ssh;
          meta.description = "Updates NixOS hosts over SSH";
        };
      });

      checks = each linux (
        pkgs:
        {
          inherit (programs pkgs) deploy-ssh;
          go = (programs pkgs).check;
          modules = import ./tests/vm/modules-check.nix { inherit pkgs; };
        }
        // import ./tests/vm { inherit pkgs programs; }
      );

      devShells = each (linux ++ darwin) (pkgs: {
        default = pkgs.mkShell {
          inputsFrom = [ (programs pkgs).deploy-ssh ];
          packages = [
            pkgs.gopls
            pkgs.nix
            pkgs.openssh
          ];
        };
      });

      formatter = each (linux ++ darwin) (pkgs: pkgs.nixfmt-tree);
    };
}
