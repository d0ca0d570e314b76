# Login users who are not root: one as nix/target.nix makes it, one with its rules for
# doas, and one with none.
{ pkgs }:
let
  # The module's line for a key, whose place is taken once the key is made.
  key = "KEY";
  users = [
    "sudoer"
    "doer"
    "plain"
  ];
  module = {
    imports = [ ../../nix/target.nix ];
    deploy-ssh.target = {
      enable = true;
      user = "sudoer";
      authorizedKeys = [ key ];
    };
    security.doas = {
      enable = true;
      extraRules = [
        {
          users = [ "doer" ];
          runAs = "root";
          noPass = true;
          cmd = "/bin/sh";
        }
      ];
    };
    users.users = {
      sudoer = {
        home = "/home/sudoer";
        createHome = true;
      };
      doer.isNormalUser = true;
      plain.isNormalUser = true;
    };
  };
  settings.ssh.options = [ "Port=2201" ];
in
{
  scenarios = [ "Elevation" ];
  hosts.web1 = {
    port = 2201;
    inherit module;
    systems = {
      good = { };
      sudo = { };
      doas = { };
    };
  };
  maps = node: {
    good = [ (node "web1" "good" settings) ];
    sudo = [ (node "web1" "sudo" (settings // { elevate = "sudo"; })) ];
    doas = [ (node "web1" "doas" (settings // { elevate = "doas"; })) ];
  };
  # The keys are in the homes, where a switch leaves them alone.
  prepare =
    nodes:
    let
      line = builtins.head nodes.web1.users.users.sudoer.openssh.authorizedKeys.keys;
    in
    ''
      restricted = '${line}'.replace("${key}", keys.splitlines()[0])
      for user in ${builtins.toJSON users}:
          web1.succeed(
              f"mkdir -p -m 700 /home/{user}/.ssh && echo '{restricted}' > /home/{user}/.ssh/authorized_keys"
              f" && chown -R {user} /home/{user}"
          )
    '';
}
