# How the hosts are reached, by name. docs/options.md has all fields.
{
  web = {
    host = "web.example.org";
    # The user that hosts/web.nix makes, and how it becomes root.
    ssh.user = "deploy";
    elevate = "sudo";
    # The key that `deploy-ssh hostkeys .#nodes` prints: no other host gets a login.
    # ssh.hostKey = "ssh-ed25519 AAAA…";
    # ssh.options = [ "Port=2222" ];
  };
}
