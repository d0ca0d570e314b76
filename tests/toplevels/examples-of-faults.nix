# One toplevel for each fault, by a name that says it.
toplevels:
let
  inherit (toplevels) mkToplevel;
  fault = name: faults: mkToplevel { inherit name faults; };
in
{
  throws = toplevels.throws "throws";
  aborts = toplevels.aborts "aborts";
  type-error = toplevels.typeError "type-error";
  unbuildable = toplevels.unbuildable "unbuildable";

  activate-fails = fault "activate-fails" { activate = "fails"; };
  activate-missing = fault "activate-missing" { activate = "missing"; };
  activate-slow = fault "activate-slow" { activateSeconds = 3; };
  unit-fails = fault "unit-fails" { unit = "fails"; };
  unit-dies-later = fault "unit-dies-later" { unit = "dies-later"; };
  unit-hangs = fault "unit-hangs" { unit = "hangs"; };
  unit-cancelled = fault "unit-cancelled" { unit = "cancelled"; };
  check-fails = fault "check-fails" { preSwitchCheck = true; };
  loader-fails = fault "loader-fails" { loader = "fails"; };
  loader-no-entry = fault "loader-no-entry" { loader = "no-entry"; };
  loader-slow = fault "loader-slow" {
    loader = "slow";
    loaderSeconds = 3;
  };
  wrong-system = fault "wrong-system" { system = "aarch64-linux"; };
  log-huge = fault "log-huge" { log = "huge"; };
  log-binary = fault "log-binary" { log = "binary"; };
  kills-sessions = fault "kills-sessions" { killSessions = true; };
  says-failed-moved = fault "says-failed-moved" {
    switch = {
      exit = 1;
      moved = true;
      warn = true;
    };
  };
  says-failed-stayed = fault "says-failed-stayed" {
    switch = {
      exit = 4;
      warn = true;
    };
  };

  # Not faults of the closure, but changes that a running system refuses.
  inhibitor-a = mkToplevel {
    name = "inhibitor-a";
    inhibitors.dbus-implementation = "dbus";
  };
  inhibitor-b = mkToplevel {
    name = "inhibitor-b";
    inhibitors.dbus-implementation = "broker";
  };
  interface-changed = mkToplevel {
    name = "interface-changed";
    interface = "systemd 3";
  };
  perl = mkToplevel {
    name = "perl";
    generation = "perl";
  };
  perl-blocking-lock = mkToplevel {
    name = "perl-blocking-lock";
    generation = "perl-blocking-lock";
  };
}
