# How the hosts are reached, by name. docs/options.md has all fields.
{
  web = {
    host = "web.example.org";
    # ssh.options = [ "Port=2222" ];

    # The key that `deploy-ssh hostkeys .#nodes` prints: no other host gets a login.
    # ssh.hostKey = "ssh-ed25519 AAAA…";

    # Once the host has been deployed to: the user that hosts/web.nix makes.
    # ssh.user = "deploy";
    # elevate = "sudo";
  };
}
