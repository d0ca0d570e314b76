{
  imports = [ ./common.nix ];
  networking.hostName = "db";
  services.postgresql.enable = true;
}
