# Before: what colmena reads.
{
  meta.nixpkgs = <nixpkgs>;

  defaults.deployment.targetUser = "root";

  db = {
    deployment.targetHost = "db.example.org";
    deployment.tags = [ "data" ];
    imports = [ ./hosts/db.nix ];
  };

  web = {
    deployment = {
      targetHost = "web.example.org";
      targetPort = 2222;
      tags = [ "public" ];
    };
    imports = [ ./hosts/web.nix ];
  };
}
