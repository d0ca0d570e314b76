package vm

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
)

const root = "../.."

// nixOf is one Nix, with a store of its own.
type nixOf struct {
	store nixtest.Store
	// usr is a folder that the program finds as its /usr; empty means the machine's.
	usr string
}

// machineNix is the machine's own.
func machineNix(t *testing.T) nixOf { return nixOf{store: nixtest.New(t)} }

// everyNix runs a test with the machine's Nix and with those of the rig's Debian
// releases. Nothing is booted for it: the program of another release only takes
// that release's /usr for its own, in a mount namespace that ends with it.
func everyNix(t *testing.T, test func(t *testing.T, n nixOf)) {
	t.Helper()
	t.Run("machine", func(t *testing.T) { test(t, machineNix(t)) })
	for _, suite := range []string{"trixie", "forky"} {
		t.Run(suite, func(t *testing.T) {
			rig.Require(t)
			if _, err := os.Readlink("/bin"); err != nil {
				t.Skipf("this machine's /bin is no link to /usr/bin, so another /usr isn't enough: %v", err)
			}
			dir, err := rig.Root(t.Context(), suite, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			test(t, nixOf{store: nixtest.New(t), usr: filepath.Join(dir, "usr")})
		})
	}
}

// run runs a program of Nix and returns what it prints, trimmed.
func (n nixOf) run(name string, args ...string) (string, error) {
	command := child.Command{Name: name, Args: args, Subject: name}
	if n.usr != "" {
		command.Name = "unshare"
		command.Args = append([]string{"--mount", "--", "/bin/sh", "-c", `mount --bind "$0" /usr && exec "$@"`, n.usr, name}, args...)
	}
	result, err := n.store.Runner.Run(context.Background(), command)
	return strings.TrimSpace(string(result.Stdout)), err
}

// source copies what flake.nix reads, without git's and other data, to where
// the store is, and returns the arguments that name it and the stand-in.
func (n nixOf) source(t *testing.T) (ref string, override []string) {
	t.Helper()
	dir := filepath.Join(n.store.Runner.Dir, "source")
	for _, name := range []string{"flake.nix", "package.nix", "go.mod", "go.sum", "CHANGELOG.md", "LICENSE", "README.md", "VERSION"} {
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
	for _, name := range []string{"cmd", "docs", "internal", "nix", "templates", "tests"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	return "path:" + dir, []string{"--no-write-lock-file", "--override-input", "nixpkgs", "path:" + filepath.Join(dir, "tests/vm/stand-in")}
}

// eval evaluates an output of the flake with a function applied, as JSON.
func (n nixOf) eval(ref string, override []string, output, apply string) (string, error) {
	return n.run("nix", append([]string{"eval", "--json", ref + "#" + output, "--apply", apply}, override...)...)
}

var version = regexp.MustCompile(`[0-9]+\.[0-9]+`)
