// Package vm has the NixOS VM tests. They take nixpkgs and KVM; what is tested
// here is that they and flake.nix evaluate, with a stand-in for nixpkgs (see
// stand-in/flake.nix for what that shows and what it doesn't).
package vm

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryNixFileParses(t *testing.T) {
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
	everyNix(t, func(t *testing.T, n nixOf) {
		if _, err := n.run("nix-instantiate", args...); err != nil {
			t.Error(err)
		}
	})
}

// Every output is evaluated for every system, by every Nix.
func TestFlake(t *testing.T) { everyNix(t, testFlake) }

func testFlake(t *testing.T, n nixOf) {
	t.Parallel()
	ref, override := n.source(t)
	release, err := n.run("nix", "--version")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(release)
	if _, err := n.run("nix", append([]string{"flake", "check", "--no-build", ref}, override...)...); err != nil {
		t.Error(err)
	}
	show := append([]string{"flake", "show", "--json", ref}, override...)
	if version.FindString(release) != "2.8" {
		show = append(show, "--all-systems")
	}
	shown, err := n.run("nix", show...)
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"vm-two-targets", "nixosModules", "flake-parts", "aarch64-darwin", "overlays"} {
		if !strings.Contains(shown, name) {
			t.Errorf("nix flake show does not show %s:\n%s", name, shown)
		}
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
		{"checks", derivation, checks, false},
		{"devShells", derivation, map[string]string{"default": "nix-shell"}, true},
	} {
		want := map[string]map[string]string{"x86_64-linux": output.want, "aarch64-linux": output.want}
		if output.darwin {
			want["aarch64-darwin"] = output.want
		}
		out, err := n.eval(ref, override, output.name, "builtins.mapAttrs (_: builtins.mapAttrs (_: "+output.of+"))")
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
		"lib":          `["checks","mkNodes","types"]`,
		"formatter":    `["aarch64-darwin","aarch64-linux","x86_64-linux"]`,
		"nixosModules": `["default","target"]`,
		"flakeModules": `["default"]`,
		"overlays":     `["default"]`,
		"templates":    `["default","flake-parts"]`,
	} {
		got, err := n.eval(ref, override, output, "builtins.attrNames")
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", output, got, err, want)
		}
	}
	// The overlay's package is the flake's own.
	if got, err := n.eval(ref, override, "overlays.default", `o: (o { callPackages = _: _: { deploy-ssh = "ours"; scenario = "not for all"; }; } { })`); err != nil || got != `{"deploy-ssh":"ours"}` {
		t.Errorf("the overlay: got %s, %v", got, err)
	}
}

// checks are the names of the derivations in the flake's checks.
var checks = map[string]string{
	"deploy-ssh": "deploy-ssh-0.1.0", "go": "deploy-ssh-check-0.1.0", "modules": "deploy-ssh-modules",
	"vm-two-targets": "vm-test-run-deploy-ssh-two-targets", "vm-broken-maps": "vm-test-run-deploy-ssh-broken-maps",
	"vm-recovery": "vm-test-run-deploy-ssh-recovery", "vm-verdicts": "vm-test-run-deploy-ssh-verdicts",
	"vm-elevation": "vm-test-run-deploy-ssh-elevation",
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
	want, err := machineNix(t).run("nix", "hash", "path", "--type", "sha256", dir)
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
