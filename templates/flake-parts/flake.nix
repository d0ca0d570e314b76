{
  description = "NixOS hosts, deployed over SSH";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";
    flake-parts.url = "github:hercules-ci/flake-parts";
    flake-parts.inputs.nixpkgs-lib.follows = "nixpkgs";
    deploy-ssh.url = "github:deploy-ssh/deploy-ssh";
    deploy-ssh.inputs.nixpkgs.follows = "nixpkgs";
  };

  outputs =
    inputs@{ flake-parts, ... }:
    flake-parts.lib.mkFlake { inherit inputs; } {
      imports = [ inputs.deploy-ssh.flakeModules.default ];
      systems = [ "x86_64-linux" ];

      # The systems. Each host's own file has its disks and boot loader.
      flake.nixosConfigurations.web = inputs.nixpkgs.lib.nixosSystem {
        system = "x86_64-linux";
        modules = [
          inputs.deploy-ssh.nixosModules.target
          ./hosts/web.nix
        ];
      };

      # What `deploy-ssh .#nodes` deploys; checked by `nix flake check`.
      deploy-ssh.nodes.web = {
        host = "web.example.org";
        # ssh.options = [ "Port=2222" ];

        # The key that `deploy-ssh hostkeys .#nodes` prints: no other host gets a login.
        # ssh.hostKey = "ssh-ed25519 AAAA…";

        # Once the host has been deployed to: the user that hosts/web.nix makes.
        # ssh.user = "deploy";
        # elevate = "sudo";
      };
    };
}
