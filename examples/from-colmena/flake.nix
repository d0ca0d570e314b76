{
  description = "After: what deploy-ssh reads";

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
        # defaults.deployment.targetUser
        defaults.ssh.user = "root";

        # A list is deployed in its order. Colmena has none.
        nodes = [
          {
            name = "db";
            host = "db.example.org"; # deployment.targetHost
            tags = [ "data" ]; # deployment.tags
            toplevel = self.nixosConfigurations.db;
          }
          {
            name = "web";
            host = "web.example.org";
            tags = [ "public" ];
            ssh.options = [ "Port=2222" ]; # deployment.targetPort
            toplevel = self.nixosConfigurations.web;
          }
        ];
      };
    };
}
