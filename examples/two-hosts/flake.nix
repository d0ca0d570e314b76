{
  description = "Two web servers, deployed over SSH";

  # No inputs: `make demo` runs this without a network. The systems come from
  # ./toplevels, a copy of tests/toplevels: shaped like NixOS systems, but small.
  # With real ones, see ../nixos/flake.nix.
  outputs =
    { self }:
    let
      toplevels = import ./toplevels { };

      # A host that serves a page over HTTPS.
      web =
        name:
        toplevels.mkToplevel {
          inherit name;
          web.page = "Hello from ${name}.\n";
        };
    in
    {
      # What `deploy-ssh .#nodes` reads.
      nodes = {
        # holds for every node that doesn't say otherwise
        defaults.ssh.user = "root";

        # A list is deployed in its order, one node after the other.
        nodes = [
          {
            name = "web1";
            host = "web1";
            toplevel = web "web1";
            # as for `ssh -o`: here, the only port that web1's sshd listens on
            ssh.options = [ "Port=2201" ];
          }
          {
            name = "web2";
            host = "web2";
            toplevel = web "web2";
            ssh.options = [ "Port=2202" ];
          }
        ];
      };
    };
}
