# The host web. What runs on it already, `nixos-generate-config` has written to
# /etc/nixos on the host: copy hardware-configuration.nix here and import it.
{
  # imports = [ ./web-hardware.nix ];

  networking.hostName = "web";
  system.stateVersion = "25.11";

  deploy-ssh.target = {
    enable = true;
    # The public half of the key that you deploy with.
    authorizedKeys = [ ];
  };
}
