{
  description = "After: the flake as deploy-ssh reads it";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";

  outputs =
    { self, nixpkgs }:
    let
      system =
        name:
        nixpkgs.lib.nixosSystem {
          system = "x86_64-linux";
          modules = [ ./hosts/${name}.nix ];
        };
    in
    {
      nixosConfigurations = {
        db = system "db";
        web = system "web";
      };

      nodes = {
        defaults.ssh.user = "root"; # sshUser

        # deploy.nodes; a set goes by name, a list in its order
        nodes.db = {
          host = "db.example.org"; # hostname
          toplevel = self.nixosConfigurations.db; # profiles.system.path
        };
        nodes.web = {
          host = "web.example.org";
          toplevel = self.nixosConfigurations.web;
          ssh.options = [ "Port=2222" ]; # sshOpts
        };
        order = [
          "db"
          "web"
        ];
      };
    };
}
