# mkToplevel: the closure of one system. README.md tells each argument.
{ build, check, mkUnits, mkFaults, mkWeb, system }:
let
  inherit (builtins) attrNames concatStringsSep filter isString listToAttrs map mapAttrs toJSON toString;

  arguments = [
    "container" "etc" "faults" "generation" "inhibitors" "initrd" "interface" "kernel"
    "kernelParams" "label" "loader" "name" "payload" "preSwitchChecks" "tmpfiles" "units" "web"
  ];

  # What NixOS puts into a system's sw/bin, by their names in Debian's /usr/bin.
  tools = import ./tools.nix;

  sw = build.tree "system-path" {
    links = listToAttrs (map (tool: { name = "bin/${tool}"; value = "/usr/bin/${tool}"; }) tools);
    scripts."bin/nixos-version" = ''
      #!/bin/sh
      cat /run/current-system/nixos-version
      echo
    '';
  };

  systemd = build.tree "systemd" {
    links = {
      "lib/systemd/systemd" = "/usr/lib/systemd/systemd";
      "bin/systemctl" = "/usr/bin/systemctl";
      "bin/systemd-run" = "/usr/bin/systemd-run";
      "bin/systemd-tmpfiles" = "/usr/bin/systemd-tmpfiles";
      "bin/journalctl" = "/usr/bin/journalctl";
      "bin/busctl" = "/usr/bin/busctl";
    };
  };

  # One subshell a check, so that `set -e` holds inside it.
  checkScript =
    checks:
    "#!/bin/bash\n"
    + concatStringsSep "" (
      map (name: ''
        (
          set -e
          ${checks.${name}}
        ) >&2
        if [ $? -ne 0 ]; then
          echo "Pre-switch check '${name}' failed" >&2
          exit 1
        fi
      '') (attrNames checks)
    )
    + "exit 0\n";

  safe = name: check.matching "mkToplevel" name "[^\"\\\\]*" "a string without quotes and backslashes";

  etcEntry =
    name: value:
    if isString value then
      { text = value; }
    else
      check.known "mkToplevel" "etc.\"${name}\"" [ "text" "source" ] value;
in
given:
let
  known = check.known "mkToplevel" "" arguments given;
  argument =
    name: types: default:
    check.type "mkToplevel" name types (known.${name} or default);

  name = check.matching "mkToplevel" "name" "[A-Za-z0-9][A-Za-z0-9._-]*" "a name for the system" (known.name or null);
  label = argument "label" [ "string" ] "25.11.test-${name}";
  container = argument "container" [ "bool" ] false;
  kernelVersion = argument "kernel" [ "string" ] "6.12.1";
  initrdVersion = argument "initrd" [ "string" ] kernelVersion;
  kernelParams = concatStringsSep " " (argument "kernelParams" [ "list" ] [ "loglevel=4" ]);
  interface = argument "interface" [ "string" ] "systemd 2";
  inhibitors = mapAttrs (key: safe "inhibitors.${key}") (argument "inhibitors" [ "set" ] { });
  loader = check.oneOf "mkToplevel" "loader" [ "systemd-boot" "systemd-boot-counting" "grub" "extlinux" ] (argument "loader" [ "string" ] "systemd-boot");
  generation = check.oneOf "mkToplevel" "generation" [
    "rust" "perl" "perl-blocking-lock" "perl-no-lock"
  ] (argument "generation" [ "string" ] "rust");
  payload =
    let
      wanted = check.known "mkToplevel" "payload" [ "compressible" "incompressible" ] (argument "payload" [ "set" ] { });
    in
    if wanted == { } then
      null
    else
      build.run "payload-${name}" ./build/payload.sh {
        seed = name;
        compressible = toString (wanted.compressible or 0);
        incompressible = toString (wanted.incompressible or 0);
      };

  faults = mkFaults (argument "faults" [ "set" ] { });
  web = mkWeb {
    inherit name;
    web = argument "web" [ "set" "null" ] null;
  };

  tmpfiles = concatStringsSep "" (map (rule: rule + "\n") (web.tmpfiles ++ argument "tmpfiles" [ "list" ] [ ]));
  units = mkUnits {
    inherit tmpfiles;
    units = web.units // argument "units" [ "set" ] { } // faults.units;
  };
  entries = mapAttrs etcEntry (
    { "tmpfiles.d/00-nixos.conf" = tmpfiles; } // web.etc // argument "etc" [ "set" ] { }
  );
  prefixed =
    field:
    listToAttrs (
      map (path: { name = "etc/${path}"; value = entries.${path}.${field}; }) (
        filter (path: entries.${path} ? ${field}) (attrNames entries)
      )
    );
  etc = build.tree "etc-${name}" {
    files = units.files // prefixed "text";
    links = units.links // prefixed "source" // { "etc/systemd/system" = "@out@/units"; };
  };

  kernel = build.tree "linux-${kernelVersion}" {
    files."bzImage" = "a stand-in for Linux ${kernelVersion}\n";
    files."lib/modules/${kernelVersion}/modules.dep" = "";
  };
  initrd = build.tree "initrd-linux-${initrdVersion}" {
    files."initrd" = "a stand-in for the initrd of Linux ${initrdVersion}\n";
  };

  # The checks' own order is by name, as on NixOS.
  preSwitchChecks =
    { switchInhibitors = ". ${build.host}/switch-inhibitors.sh"; }
    // argument "preSwitchChecks" [ "set" ] { }
    // (if faults.preSwitchCheck then { fault = "echo 'this check fails, as asked for'; false"; } else { });

  installBootLoader =
    if container then
      "/bin/true"
    else
      "${build.tree "install-boot-loader-${loader}" {
        scripts."install" = ''
          #!/bin/sh
          export LOADER='${loader}' LOADER_FAULT='${toString faults.loader}' LOADER_SECONDS='${toString faults.loaderSeconds}'
          exec /bin/bash ${build.host}/install-boot-loader.sh "$@"
        '';
      }}/install";

  toplevel = build.run "nixos-system-${name}-${label}" ./build/toplevel.sh {
    inherit etc label interface sw systemd kernelParams generation installBootLoader;
    kernel = if container then "" else kernel;
    initrd = if container then "" else initrd;
    claimedSystem = if faults.claimedSystem == null then system else faults.claimedSystem;
    buildFault = toString faults.build;
    dependencies = toString (filter (path: path != null) [ payload web.resource ]);
    inhibitors = if inhibitors == { } then "" else toJSON inhibitors;
    bootJson = toJSON {
      "org.nixos.bootspec.v1" = {
        inherit system label;
        kernel = "${kernel}/bzImage";
        initrd = "${initrd}/initrd";
        kernelParams = argument "kernelParams" [ "list" ] [ "loglevel=4" ];
        toplevel = "@out@";
        init = "@out@/init";
      };
      "org.nixos.specialisation.v1" = { };
    };
    preSwitchCheck = "${
      build.tree "pre-switch-checks" { scripts."check" = checkScript preSwitchChecks; }
    }/check";
    initFile = "${build.host}/init.sh";
    activateFile = if faults.activateMissing then "" else "${build.host}/activate.sh";
    dryActivateFile = "${build.host}/dry-activate.sh";
    switchFile =
      if faults.stub == null then
        "${build.host}/switch-to-configuration.sh"
      else
        builtins.toFile "switch-to-configuration" faults.stub;
    inherit (faults) before after;
    passAsFile = [ "before" "after" ];
  };
in
builtins.seq known (toplevel // { inherit label; inherit (web) resource; })
