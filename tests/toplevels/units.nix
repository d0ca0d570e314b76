# The unit folder of a toplevel: its own units, and the few that every NixOS
# system has and a switch relies on.
{ check }:
let
  inherit (builtins) attrNames concatMap foldl' hashString isAttrs isString listToAttrs map;
  unitName = "[A-Za-z0-9@:_.-]+\\.(service|socket|target|timer|path|mount|slice)";
in
# tmpfiles: the text of the rules, so that the unit changes when they do.
{ units, tmpfiles }:
let
  own = builtins.mapAttrs (
    name: given:
    let
      unit = check.known "mkToplevel" "units.${name}" [ "text" "wantedBy" ] given;
    in
    {
      text = check.type "mkToplevel" "units.${name}.text" [ "string" ] unit.text;
      wantedBy = check.type "mkToplevel" "units.${name}.wantedBy" [ "list" ] (unit.wantedBy or [ ]);
    }
  ) units;

  common = {
    # Debian's own, word for word: a switch starts only targets found here.
    "multi-user.target" = {
      text = ''
        [Unit]
        Description=Multi-User System
        Documentation=man:systemd.special(7)
        Requires=basic.target
        Conflicts=rescue.service rescue.target
        After=basic.target rescue.service rescue.target
        AllowIsolate=yes
      '';
      wantedBy = [ ];
    };
    "sysinit-reactivation.target" = {
      text = ''
        [Unit]
        Description=Reactivate sysinit units
        Requires=systemd-tmpfiles-resetup.service
      '';
      wantedBy = [ ];
    };
    "systemd-tmpfiles-resetup.service" = {
      text = ''
        [Unit]
        Description=Re-setup tmpfiles on a system that is already running.
        DefaultDependencies=no
        After=local-fs.target systemd-sysusers.service systemd-journald.service
        Before=sysinit-reactivation.target shutdown.target
        Conflicts=shutdown.target
        X-Restart-Triggers=${hashString "sha256" tmpfiles}

        [Service]
        Type=oneshot
        RemainAfterExit=yes
        ExecStart=/usr/bin/systemd-tmpfiles --create --remove --exclude-prefix=/dev
        SuccessExitStatus=DATAERR CANTCREAT
      '';
      wantedBy = [ ];
    };
  };

  all = common // own;
  names = map (check.matching "mkToplevel" "units" unitName "the name of a unit file") (attrNames all);
in
{
  files = listToAttrs (map (name: { name = "units/${name}"; value = all.${name}.text; }) names);
  links = listToAttrs (
    concatMap (
      name:
      map (target: {
        name = "units/${target}.wants/${name}";
        value = "../${name}";
      }) all.${name}.wantedBy
    ) names
  );
}
