# The packages and builders of nixpkgs that this project uses.
{ lib, system }:
let
  inherit (builtins)
    attrNames
    functionArgs
    intersectAttrs
    isFunction
    mapAttrs
    removeAttrs
    toJSON
    ;

  # A derivation that nobody should build; each attribute of it is evaluated.
  inert =
    name: attributes:
    derivation (
      {
        inherit name system;
        builder = "/bin/sh";
        args = [
          "-c"
          "echo 'the stand-in for nixpkgs builds nothing' >&2; exit 1"
        ];
      }
      // attributes
    );

  # Arguments in nixpkgs' builders that are no attributes of the derivation itself.
  mkDerivation =
    {
      pname,
      version,
      src,
      meta ? { },
      env ? { },
      ...
    }@args:
    inert "${pname}-${version}" (
      removeAttrs args [
        "meta"
        "env"
      ]
      // env
    )
    // {
      inherit meta;
    };

  buildGoModule =
    { vendorHash, ... }@args:
    let
      vendor = derivation {
        name = "vendor";
        inherit system;
        builder = "/bin/sh";
        outputHashMode = "recursive";
        # As in nixpkgs, where the hash names its own algorithm.
        outputHash = vendorHash;
      };
    in
    mkDerivation (args // { goModules = vendor; });

  # A machine of NixOS, as far as it can be without NixOS.
  machine =
    node: nodes: module:
    lib.evalModules {
      modules = [
        # The options of NixOS are unknown here.
        {
          _module.freeformType = lib.types.anything;
          networking.hostName = lib.mkDefault node;
        }
        # A system's toplevel depends on all of its settings.
        (
          { extendModules, ... }:
          {
            system.build.toplevel = inert "nixos-system-${node}" {
              config = toJSON (removeAttrs (extendModules { modules = [ ]; }).config [ "system" ]);
            };
          }
        )
        module
      ];
      specialArgs = {
        inherit pkgs nodes;
        name = node;
      };
    };

  pkgs = rec {
    inherit machine;
    inherit lib system buildGoModule;
    buildGo126Module = buildGoModule;

    # As where nothing is built for another platform.
    stdenv = {
      hostPlatform = { inherit system; };
      buildPlatform = {
        inherit system;
        canExecute = platform: platform.system == system;
      };
    };

    callPackages =
      file: args:
      let
        f = import file;
      in
      f (intersectAttrs (functionArgs f) pkgs // args);

    mkShell =
      {
        packages ? [ ],
        inputsFrom ? [ ],
      }:
      inert "nix-shell" { inherit packages inputsFrom; };

    # A real file, so that it can be read after the evaluation. Store paths in its
    # text are no dependencies, for nothing is built that they could be read from.
    writeText =
      name: text:
      inert name { inherit text; }
      // {
        outPath = builtins.toFile name (builtins.unsafeDiscardStringContext text);
      };
    writeShellScript = writeText;
    runCommand = name: attributes: buildCommand: inert name (attributes // { inherit buildCommand; });

    testers.runNixOSTest =
      {
        name,
        nodes,
        testScript,
      }:
      let
        machines = mapAttrs (node: module: (machine node machines module).config) nodes;
        script = if isFunction testScript then testScript { nodes = machines; } else testScript;
      in
      inert "vm-test-run-${name}" {
        testScript = script;
        systems = map (node: machines.${node}.system.build.toplevel) (attrNames machines);
      }
      // {
        # Of the stand-in only: what the Go test looks at.
        testScript = script;
        nodes = machines;
      };
  }
  // lib.genAttrs [
    "coreutils"
    "curl"
    "gopls"
    "installShellFiles"
    "nix"
    "nixfmt-tree"
    "openssh"
    "openssl"
  ] (name: inert name { });
in
pkgs
