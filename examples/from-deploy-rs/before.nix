# Before: the flake as deploy-rs reads it.
{
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";
  inputs.deploy-rs.url = "github:serokell/deploy-rs";

  outputs =
    {
      self,
      nixpkgs,
      deploy-rs,
    }:
    let
      system =
        name:
        nixpkgs.lib.nixosSystem {
          system = "x86_64-linux";
          modules = [ ./hosts/${name}.nix ];
        };
      activate = deploy-rs.lib.x86_64-linux.activate.nixos;
    in
    {
      nixosConfigurations = {
        db = system "db";
        web = system "web";
      };

      deploy = {
        sshUser = "root";
        nodes.db = {
          hostname = "db.example.org";
          profiles.system.path = activate self.nixosConfigurations.db;
        };
        nodes.web = {
          hostname = "web.example.org";
          sshOpts = [
            "-p"
            "2222"
          ];
          profiles.system.path = activate self.nixosConfigurations.web;
        };
      };
    };
}
