{
  imports = [ ./common.nix ];
  networking.hostName = "web";
  services.openssh.ports = [ 2222 ];
  services.nginx.enable = true;
}
