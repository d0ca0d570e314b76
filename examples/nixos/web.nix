{
  services.openssh.ports = [ 2222 ];
  services.nginx.enable = true;
  networking.firewall.allowedTCPPorts = [ 443 ];
}
