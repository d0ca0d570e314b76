# The host web. What is deployed replaces what it runs: start from its own
# /etc/nixos/configuration.nix and hardware-configuration.nix.
{
  # imports = [ ./web-hardware.nix ];

  networking.hostName = "web";
  system.stateVersion = "25.11";

  # Makes the user `deploy`. Keep root's key until that has been tried.
  deploy-ssh.target = {
    enable = true;
    authorizedKeys = [ ]; # the public half of the key that you deploy with
  };
  users.users.root.openssh.authorizedKeys.keys = [ ];
}
