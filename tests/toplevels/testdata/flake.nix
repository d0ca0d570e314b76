# The systems that the tests switch between, beside those in ../examples-of-faults.nix.
{
  outputs =
    { self }:
    let
      toplevels = import ./toplevels { };
      inherit (toplevels) mkToplevel;

      # A unit whose text differs by VERSION and that is handled as SETTINGS say.
      service = version: settings: {
        wantedBy = [ "multi-user.target" ];
        text = ''
          [Service]
          Environment=VERSION=${version}
          ExecStart=/bin/sleep infinity
          ExecReload=/bin/true
          ${settings}
        '';
      };
      changing =
        name: version: more:
        mkToplevel {
          inherit name;
          units = {
            "stops.service" = service version "";
            "restarts.service" = service version "X-StopIfChanged=false";
            "reloads.service" = service version "X-ReloadIfChanged=true";
            "stays.service" = service version "X-RestartIfChanged=false";
            "same.service" = service "1" "";
          }
          // more;
        };
      faults = import ./toplevels/examples-of-faults.nix toplevels;
    in
    {
      systems =
        builtins.removeAttrs faults [
          "throws"
          "aborts"
          "type-error"
          "unbuildable"
        ]
        // {
          base = mkToplevel {
            name = "base";
            web.page = "base\n";
          };
          next = mkToplevel {
            name = "next";
            web.page = "next\n";
            kernel = "6.12.2";
          };
          old-units = changing "old-units" "1" { "gone.service" = service "1" ""; };
          new-units = changing "new-units" "2" { "fresh.service" = service "1" ""; };
          reexec = mkToplevel {
            name = "reexec";
            etc."systemd/system.conf" = "[Manager]\nLogLevel=info\n";
          };
          counted = mkToplevel {
            name = "counted";
            loader = "systemd-boot-counting";
          };
          grub = mkToplevel {
            name = "grub";
            loader = "grub";
          };
          extlinux = mkToplevel {
            name = "extlinux";
            loader = "extlinux";
          };
          container = mkToplevel {
            name = "container";
            container = true;
          };
          # a unit that needs what a file rule makes, and a rule with an argument
          rules = mkToplevel {
            name = "rules";
            tmpfiles = [ "f /run/made-by-a-rule 0640 root root - content" ];
            units."needs-rule.service" = {
              wantedBy = [ "multi-user.target" ];
              text = ''
                [Service]
                Type=oneshot
                RemainAfterExit=yes
                ExecStart=/usr/bin/grep -q content /run/made-by-a-rule
              '';
            };
          };
          payload = mkToplevel {
            name = "payload";
            payload = {
              compressible = 3000000;
              incompressible = 1000000;
            };
          };
        };
      refusals = {
        unknown = mkToplevel {
          name = "x";
          unit = { };
        };
        unknown-fault = mkToplevel {
          name = "x";
          faults.activat = "fails";
        };
        no-name = mkToplevel { };
        bad-name = mkToplevel { name = "a b"; };
        bad-type = mkToplevel {
          name = "x";
          label = 7;
        };
        bad-choice = mkToplevel {
          name = "x";
          loader = "lilo";
        };
        bad-unit = mkToplevel {
          name = "x";
          units.nginx.text = "";
        };
        bad-fault = mkToplevel {
          name = "x";
          faults.unit = "explodes";
        };
      };
    };
}
