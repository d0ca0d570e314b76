// Package vm has the NixOS VM tests. They take nixpkgs and KVM; what is tested
// here is that they and flake.nix evaluate, with a stand-in for nixpkgs (see
// stand-in/flake.nix for what that shows and what it doesn't).
package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// nix runs a program of Nix and returns what it prints, trimmed.
func nix(t *testing.T, store nixtest.Store, name string, args ...string) (string, error) {
	t.Helper()
	result, err := store.Runner.Run(context.Background(), child.Command{Name: name, Args: args})
	return strings.TrimSpace(string(result.Stdout)), err
}

// source copies what flake.nix reads, without git's and other data, to where
// the store is, and returns the arguments that name it and the stand-in.
func source(t *testing.T, store nixtest.Store) (ref string, override []string) {
	t.Helper()
	dir := filepath.Join(store.Runner.Dir, "source")
	for _, name := range []string{"flake.nix", "package.nix", "go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cmd", "internal", "nix", "tests"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	return "path:" + dir, []string{"--no-write-lock-file", "--override-input", "nixpkgs", "path:" + filepath.Join(dir, "tests/vm/stand-in")}
}

func TestEveryNixFileParses(t *testing.T) {
	store := nixtest.New(t)
	args := []string{"--parse"}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".nix") {
			path, err = filepath.Abs(path)
			args = append(args, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nix(t, store, "nix-instantiate", args...); err != nil {
		t.Error(err)
	}
}

// nix flake check looks at every output, for every system.
func TestFlakeCheck(t *testing.T) {
	store := nixtest.New(t)
	ref, override := source(t, store)
	if _, err := nix(t, store, "nix", append([]string{"flake", "check", "--no-build", ref}, override...)...); err != nil {
		t.Fatal(err)
	}
	out, err := nix(t, store, "nix", append([]string{"flake", "show", "--json", ref}, override...)...)
	if err != nil {
		t.Fatal(err)
	}
	type systems map[string]map[string]struct{ Type, Name string }
	var outputs struct {
		Apps, Checks, DevShells, Packages systems
		Formatter                         map[string]struct{ Type, Name string }
		Lib                               any
	}
	if err := json.Unmarshal([]byte(out), &outputs); err != nil {
		t.Fatal(err)
	}
	for _, system := range []string{"x86_64-linux", "aarch64-linux", "aarch64-darwin"} {
		for what, got := range map[string]bool{
			"the package":   outputs.Packages[system]["default"].Name == "deploy-ssh-0.1.0",
			"the app":       outputs.Apps[system]["default"].Type == "app",
			"the shell":     outputs.DevShells[system]["default"].Type == "derivation",
			"the formatter": outputs.Formatter[system].Type == "derivation",
			"the VM test":   outputs.Checks[system]["vm-two-targets"].Type == "derivation" || strings.HasSuffix(system, "-darwin"),
			"the Go check":  outputs.Checks[system]["go"].Type == "derivation" || strings.HasSuffix(system, "-darwin"),
		} {
			if !got {
				t.Errorf("%s: %s is missing:\n%s", system, what, out)
			}
		}
	}
	for attribute, want := range map[string]string{
		"apps." + nixtest.Platform() + ".default.program": "/bin/deploy-ssh",
		"lib": "mkNodes",
	} {
		apply := "v: if builtins.isAttrs v then toString (builtins.attrNames v) else v"
		got, err := nix(t, store, "nix", append([]string{"eval", "--raw", ref + "#" + attribute, "--apply", apply}, override...)...)
		if err != nil || !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %q, %v, want %q", attribute, got, err, want)
		}
	}
}

// The hash in package.nix is that of the tree that `go mod vendor` makes, as
// a Nix archive: what buildGoModule compares with.
func TestVendorHash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vendor")
	vendor := exec.CommandContext(t.Context(), "go", "mod", "vendor", "-o", dir)
	vendor.Dir = root
	if out, err := vendor.CombinedOutput(); err != nil {
		t.Fatalf("go mod vendor: %v\n%s", err, out)
	}
	want, err := nix(t, nixtest.New(t), "nix", "hash", "path", "--type", "sha256", dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "package.nix"))
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`vendorHash = "(.*)";`).FindSubmatch(text)
	if got == nil {
		t.Fatal("package.nix has no vendorHash")
	}
	if string(got[1]) != want {
		t.Errorf("package.nix has vendorHash = %q, but go.mod and the imports now make %q", got[1], want)
	}
}

// A stand-in that takes everything would show nothing.
func TestStandInRefuses(t *testing.T) {
	store := nixtest.New(t)
	dir, err := filepath.Abs("stand-in")
	if err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "package.nix")
	if err := os.WriteFile(missing, []byte("{ nosuch }: nosuch"), 0o644); err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		`lib.fileset.unions [ ./nowhere ]`:                                                                                    "nowhere does not exist",
		`lib.evaluate { modules = [ { a.b = 1; } ({ x, ... }: { a.b = x; }) ]; args.x = 2; }`:                                 "the option a.b is defined in two ways",
		`pkgs.callPackages ` + missing + ` { }`:                                                                               "nosuch",
		`pkgs.testers.runNixOSTest { name = "a"; nodes = { }; }`:                                                              "testScript",
		`(pkgs.testers.runNixOSTest { name = "a"; testScript = ""; nodes.a = { pkgs, ... }: { b = pkgs.nosuch; }; }).drvPath`: "nosuch",
	} {
		text := fmt.Sprintf("let lib = import %s/lib.nix; pkgs = import %s/packages.nix { inherit lib; system = %q; }; in %s", dir, dir, nixtest.Platform(), expression)
		if got, err := nix(t, store, "nix-instantiate", "--eval", "--strict", "--expr", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %s, %v\nwant %s", expression, got, err, want)
		}
	}
	// And what it takes is merged.
	got, err := nix(t, store, "nix-instantiate", "--eval", "--strict", "--json", "--expr", fmt.Sprintf(
		`let lib = import %s/lib.nix; in lib.evaluate { modules = [ { imports = [ { a.l = [ 1 ]; f = [ 1 ]; } ]; a.l = [ 2 ]; a.s = "x"; } ({ x, ... }: { f = lib.mkForce [ x ]; }) ]; args.x = 3; }`, dir))
	if diff := cmp.Diff(`{"a":{"l":[1,2],"s":"x"},"f":[3]}`, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}
