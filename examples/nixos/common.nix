# What all hosts have in common.
{
  services.openssh.enable = true;
  users.users.root.openssh.authorizedKeys.keyFiles = [ ./deploy.pub ];

  boot.loader.systemd-boot.enable = true;
  fileSystems."/" = {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  fileSystems."/boot" = {
    device = "/dev/disk/by-label/boot";
    fsType = "vfat";
  };
  system.stateVersion = "25.11";
}
