package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/google/go-cmp/cmp"
)

// A stand-in that takes everything would show nothing.
func TestStandInRefuses(t *testing.T) {
	n := machineNix(t)
	dir, err := filepath.Abs("stand-in")
	if err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "package.nix")
	if err := os.WriteFile(missing, []byte("{ nosuch }: nosuch"), 0o644); err != nil {
		t.Fatal(err)
	}
	const option = `{ options.a = lib.mkOption { type = lib.types.%s; }; }`
	options := func(kind, definitions string) string {
		return fmt.Sprintf(`(lib.evalModules { modules = [ `+option+` %s ]; }).config`, kind, definitions)
	}
	for expression, want := range map[string]string{
		`lib.fileset.unions [ ./nowhere ]`: "nowhere does not exist",
		`(lib.evalModules { modules = [ { _module.freeformType = 1; a.b = 1; } ({ x, ... }: { a.b = x; }) ]; specialArgs.x = 2; }).config`: "the option a.b is defined in two ways",
		options("str", `{ a = 1; }`):                       "`a' is not of type `string'",
		options("str", `{ a = "x"; b = 1; }`):              "`b' does not exist",
		options("str", ``):                                 "`a' was accessed but has no value defined",
		options("str", `{ a = "x"; } { a = "y"; }`):        "`a' has conflicting definition values",
		options("str", fmt.Sprintf(option, "str")):         "declared twice",
		options("listOf lib.types.bool", `{ a = [ 1 ]; }`): "is not of type `boolean'",
		options("attrsOf lib.types.bool", `{ a.b = 1; }`):  "`a.b' is not of type `boolean'",
		options("submodule { options.c = lib.mkOption { type = lib.types.bool; }; }", `{ a.d = 1; }`):                         "`a.d' does not exist",
		`pkgs.callPackages ` + missing + ` { }`:                                                                               "nosuch",
		`pkgs.testers.runNixOSTest { name = "a"; nodes = { }; }`:                                                              "testScript",
		`(pkgs.testers.runNixOSTest { name = "a"; testScript = ""; nodes.a = { pkgs, ... }: { b = pkgs.nosuch; }; }).drvPath`: "nosuch",
	} {
		text := fmt.Sprintf("let lib = import %s/lib.nix; pkgs = import %s/packages.nix { inherit lib; system = %q; }; in %s", dir, dir, nixtest.Platform(), expression)
		if got, err := n.run("nix-instantiate", "--eval", "--strict", "--expr", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %s, %v\nwant %s", expression, got, err, want)
		}
	}
	// And what it takes is merged, as nixpkgs merges it.
	for expression, want := range map[string]string{
		options("listOf lib.types.bool", `{ a = [ true ]; } { a = lib.mkIf true [ false ]; } { a = lib.mkIf (throw "x") (throw "y"); }`): "",
		options("listOf lib.types.bool", `{ a = [ true ]; } (lib.mkMerge [ { a = [ false ]; } (lib.mkIf false { a = [ true ]; }) ])`):    `{"a":[true,false]}`,
		options("str", `{ a = lib.mkDefault "x"; } { a = "y"; }`):                                                                        `{"a":"y"}`,
		options("str", `{ a = lib.mkForce "x"; } { a = "y"; }`):                                                                          `{"a":"x"}`,
		options("nullOr lib.types.str", `({ config, ... }: { a = if config ? a then null else "x"; })`):                                  `{"a":null}`,
	} {
		text := fmt.Sprintf("let lib = import %s/lib.nix; in %s", dir, expression)
		got, err := n.run("nix-instantiate", "--eval", "--strict", "--json", "--expr", text)
		if diff := cmp.Diff(want, got); want == "" && err == nil || want != "" && (err != nil || diff != "") {
			t.Errorf("%s: got %s, %v\n%s", expression, got, err, diff)
		}
	}
}
