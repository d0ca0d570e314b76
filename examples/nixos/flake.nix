{
  description = "NixOS hosts, deployed over SSH";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";

  outputs =
    { self, nixpkgs }:
    let
      host =
        name:
        nixpkgs.lib.nixosSystem {
          system = "x86_64-linux";
          modules = [
            ./common.nix
            ./${name}.nix
            { networking.hostName = name; }
          ];
        };
    in
    {
      nixosConfigurations = {
        db = host "db";
        web = host "web";
      };

      # What `deploy-ssh .#nodes` reads. A toplevel may be a NixOS configuration,
      # a derivation, or a store path.
      nodes = {
        # holds for every node that doesn't say otherwise
        defaults.ssh = {
          user = "root";
          key = "/home/ann/.ssh/deploy";
        };

        # The database first: a list is deployed in its order.
        nodes = [
          {
            name = "db";
            host = "10.0.0.2";
            toplevel = self.nixosConfigurations.db;
            tags = [ "data" ];
            # pinned: no other key is ever accepted (`deploy-ssh hostkeys .#nodes`
            # prints what to paste)
            ssh.hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICYyyRy7JtIWwGDsQCIE7Oku0z3MavMBDTJ+2S7t6Tsu";
          }
          {
            name = "web";
            host = "web.example.org";
            toplevel = self.nixosConfigurations.web;
            tags = [ "public" ];
            ssh.options = [ "Port=2222" ];
          }
        ];
      };
    };
}
