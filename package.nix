# The programs. Go writes `go 1.26` in go.mod: where nixpkgs' own default is
# older, the builder for 1.26 is taken.
{
  lib,
  stdenv,
  installShellFiles,
  buildGoModule,
  buildGo126Module ? buildGoModule,
}:
let
  inherit (lib) fileset;

  common = {
    version = builtins.replaceStrings [ "\n" ] [ "" ] (builtins.readFile ./VERSION);
    # All Go code and what it embeds, for the tests' modules are vendored, too; the
    # man pages, and what else the tests compare with the program.
    src = fileset.toSource {
      root = ./.;
      fileset = fileset.unions [
        ./go.mod
        ./go.sum
        ./cmd
        ./internal
        ./nix
        ./tests
        ./CHANGELOG.md
        ./LICENSE
        ./README.md
        ./VERSION
        ./docs
      ];
    };
    # The hash of what `go mod vendor` makes. `go test ./tests/vm` compares it
    # and, when go.mod or an import has changed, prints the new one.
    vendorHash = "sha256-s3Utvb7YgJydBpGyChslz8E/5q217m8VbFEln/4OlmM=";
    env.CGO_ENABLED = 0;
    meta = {
      description = "Updates NixOS hosts over SSH";
      platforms = lib.platforms.linux ++ lib.platforms.darwin;
    };
  };
  go = args: buildGo126Module (common // args);
in
{
  deploy-ssh = go {
    pname = "deploy-ssh";
    subPackages = [ "cmd/deploy-ssh" ];
    ldflags = [
      "-s"
      "-w"
      "-X github.com/deploy-ssh/deploy-ssh/internal/cli.Version=${common.version}"
    ];
    nativeBuildInputs = [ installShellFiles ];
    # The man pages are those of the sources, which a test compares with the program.
    postInstall = ''
      installManPage docs/man/*.1
    ''
    + lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
      installShellCompletion --cmd deploy-ssh \
        --bash <($out/bin/deploy-ssh completion bash) \
        --zsh <($out/bin/deploy-ssh completion zsh) \
        --fish <($out/bin/deploy-ssh completion fish)
    '';
    # The check `go` has the tests.
    doCheck = false;
    meta = common.meta // {
      license = lib.licenses.mit;
      mainProgram = "deploy-ssh";
    };
  };

  # Plays the end-to-end scenarios on the deployer of a VM test.
  scenario = go {
    pname = "deploy-ssh-scenario";
    subPackages = [ "tests/scenario/cmd/scenario" ];
    doCheck = false;
    meta = common.meta // {
      mainProgram = "scenario";
    };
  };

  # What can be tested in Nix's sandbox: neither root nor a network is there.
  check = go {
    pname = "deploy-ssh-check";
    buildPhase = ''
      runHook preBuild
      unformatted=$(gofmt -l cmd internal nix tests)
      if [ -n "$unformatted" ]; then
        echo "gofmt would change: $unformatted" >&2
        exit 1
      fi
      go vet ./...
      go test ./cmd/... ./internal/... ./nix/...
      runHook postBuild
    '';
    doCheck = false;
    installPhase = "touch $out";
  };
}
