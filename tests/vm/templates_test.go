package vm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
)

// The templates are flakes whose checks and node maps evaluate, by every Nix.
func TestTemplates(t *testing.T) {
	everyNix(t, func(t *testing.T, n nixOf) {
		ref, nixpkgs := n.source(t)
		source := ref[len("path:"):]
		for _, template := range []string{"default", "flake-parts"} {
			t.Run(template, func(t *testing.T) {
				override := append([]string{"--override-input", "deploy-ssh", ref}, nixpkgs...)
				if template == "flake-parts" {
					override = append(override, "--override-input", "flake-parts", "path:"+source+"/tests/vm/stand-in-flake-parts")
				}
				dir := filepath.Join(n.store.Runner.Dir, template)
				if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "templates", template))); err != nil {
					t.Fatal(err)
				}
				if _, err := n.run("nix", append([]string{"flake", "check", "--no-build", "path:" + dir}, override...)...); err != nil {
					t.Error(err)
				}
				const look = `map: builtins.mapAttrs (_: n: { inherit (n) host; toplevel = n.toplevel.config.system.build.toplevel.name; user = n.toplevel.config.deploy-ssh.target.user; }) map.nodes`
				got, err := n.eval("path:"+dir, override, "nodes", look)
				if want := `{"web":{"host":"web.example.org","toplevel":"nixos-system-unnamed","user":"deploy"}}`; err != nil || got != want {
					t.Errorf("nodes: got %s, %v", got, err)
				}
				got, err = n.eval("path:"+dir, override, "checks", "c: c."+nixtest.Platform()+".deploy-ssh-nodes.name")
				if err != nil || got != `"deploy-ssh-nodes"` {
					t.Errorf("checks: got %s, %v", got, err)
				}
			})
		}
	})
}
