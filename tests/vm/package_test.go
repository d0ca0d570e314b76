package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
)

// What package.nix installs beside the program is played: its own commands, with the
// program built here and nixpkgs' two functions played by copies.
func TestPackageInstallsManualAndCompletions(t *testing.T) {
	n := machineNix(t)
	ref, override := n.source(t)
	script, err := n.run("nix", append([]string{"eval", "--raw", ref + "#packages." + nixtest.Platform() + ".deploy-ssh.postInstall"}, override...)...)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(out, "bin/deploy-ssh"), "./cmd/deploy-ssh")
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	install := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", `
installManPage() { mkdir -p "$out/share/man/man1" && cp "$@" "$out/share/man/man1"; }
installShellCompletion() {
  [ "$1 $2" = "--cmd deploy-ssh" ] && shift 2
  while [ $# -gt 0 ]; do cat "$2" >"$out/completion.${1#--}"; shift 2; done
}
`+script)
	install.Dir = root
	install.Env = append(os.Environ(), "out="+out)
	if said, err := install.CombinedOutput(); err != nil {
		t.Fatalf("postInstall: %v\n%s\n%s", err, said, script)
	}
	for shell, mark := range map[string]string{"bash": "complete -o default", "zsh": "#compdef deploy-ssh", "fish": "complete -c deploy-ssh"} {
		text, err := os.ReadFile(filepath.Join(out, "completion."+shell))
		if err != nil || !strings.Contains(string(text), mark) {
			t.Errorf("%s: %v, without %q:\n%.300s", shell, err, mark, text)
		}
	}
	committed, err := filepath.Glob(filepath.Join(root, "docs/man/*.1"))
	if err != nil {
		t.Fatal(err)
	}
	installed, err := filepath.Glob(filepath.Join(out, "share/man/man1/*.1"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(names(committed), names(installed)); diff != "" || len(installed) < 5 {
		t.Errorf("man pages: -committed +installed\n%s", diff)
	}
}

func names(paths []string) []string {
	var all []string
	for _, p := range paths {
		all = append(all, filepath.Base(p))
	}
	return all
}
