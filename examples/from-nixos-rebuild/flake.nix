{
  description = "After: the same configurations, and where they go";

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
      # As before.
      nixosConfigurations = {
        db = system "db";
        web = system "web";
      };

      # New: what stood in the calls.
      nodes = [
        {
          name = "db";
          host = "db.example.org"; # --target-host
          toplevel = self.nixosConfigurations.db; # --flake .#db
        }
        {
          name = "web";
          host = "web.example.org";
          toplevel = self.nixosConfigurations.web;
          ssh.options = [ "Port=2222" ]; # NIX_SSHOPTS
        }
      ];
    };
}
