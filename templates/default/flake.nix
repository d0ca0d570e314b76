{
  description = "NixOS hosts, deployed over SSH";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";
    deploy-ssh.url = "github:deploy-ssh/deploy-ssh";
    deploy-ssh.inputs.nixpkgs.follows = "nixpkgs";
  };

  outputs =
    {
      self,
      nixpkgs,
      deploy-ssh,
    }:
    {
      # The systems. Each host's own file has its disks and boot loader.
      nixosConfigurations.web = nixpkgs.lib.nixosSystem {
        system = "x86_64-linux";
        modules = [
          deploy-ssh.nixosModules.target
          ./hosts/web.nix
        ];
      };

      # What `deploy-ssh .#nodes` deploys: every configuration, with these settings.
      nodes = deploy-ssh.lib.mkNodes {
        inherit (self) nixosConfigurations;
        nodes = import ./nodes.nix;
      };

      # `nix flake check` refuses a node map that deploy-ssh would refuse.
      checks = deploy-ssh.lib.checks self.nodes;
    };
}
