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

// Every output is evaluated for every system.
func TestFlake(t *testing.T) {
	store := nixtest.New(t)
	ref, override := source(t, store)
	if _, err := nix(t, store, "nix", append([]string{"flake", "check", "--no-build", ref}, override...)...); err != nil {
		t.Error(err)
	}
	const (
		program = `p: if builtins.match "/.*/bin/deploy-ssh" p.program != null then p.type else p.program`
		// Newer Nix checks the outputs of its own system only.
		derivation = "d: builtins.seq d.drvPath d.name"
	)
	for _, output := range []struct {
		name, of string
		want     map[string]string
		darwin   bool
	}{
		{"packages", derivation, map[string]string{"default": "deploy-ssh-0.1.0", "deploy-ssh": "deploy-ssh-0.1.0"}, true},
		{"apps", program, map[string]string{"default": "app"}, true},
		{"checks", derivation, map[string]string{
			"deploy-ssh": "deploy-ssh-0.1.0", "go": "deploy-ssh-check-0.1.0",
			"vm-two-targets": "vm-test-run-deploy-ssh-two-targets",
		}, false},
		{"devShells", derivation, map[string]string{"default": "nix-shell"}, true},
	} {
		want := map[string]map[string]string{"x86_64-linux": output.want, "aarch64-linux": output.want}
		if output.darwin {
			want["aarch64-darwin"] = output.want
		}
		apply := "builtins.mapAttrs (_: builtins.mapAttrs (_: " + output.of + "))"
		out, err := nix(t, store, "nix", append([]string{"eval", "--json", ref + "#" + output.name, "--apply", apply}, override...)...)
		if err != nil {
			t.Error(err)
			continue
		}
		var got map[string]map[string]string
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", output.name, diff)
		}
	}
	for output, want := range map[string]string{
		"lib":       `["mkNodes","types"]`,
		"formatter": `["aarch64-darwin","aarch64-linux","x86_64-linux"]`,
	} {
		got, err := nix(t, store, "nix", append([]string{"eval", "--json", ref + "#" + output, "--apply", "builtins.attrNames"}, override...)...)
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", output, got, err, want)
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
