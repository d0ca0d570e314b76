// Package nixtest gives tests the real Nix with a store of their own.
// The machine's store and the home directory stay as they are.
package nixtest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

// Platform is this machine as Nix names it, such as x86_64-linux.
func Platform() string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux"
}

// Store is a store in a directory of the test.
type Store struct {
	// Runner runs Nix on the store.
	Runner child.Local
	// Dir is the directory of the store paths. It is not /nix/store.
	Dir string
}

// New makes an empty store. It needs Nix, as [tooltest.Need] says.
func New(t testing.TB) Store {
	t.Helper()
	tooltest.Need(t, "nix")
	// Nix wants a store directory that no symbolic link leads to.
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// Store paths are read-only, which hinders the removal of the directory.
	t.Cleanup(func() {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(path, 0o755)
			}
			return nil
		})
	})
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "NIX_") {
			env = append(env, entry)
		}
	}
	for name, dir := range map[string]string{
		"HOME": "home", "XDG_CACHE_HOME": "home/.cache", "XDG_CONFIG_HOME": "home/.config",
		"XDG_DATA_HOME": "home/.local/share", "XDG_STATE_HOME": "home/.local/state",
		"NIX_STORE_DIR": "store", "NIX_STATE_DIR": "var", "NIX_LOG_DIR": "log", "NIX_CONF_DIR": "etc",
	} {
		env = append(env, name+"="+filepath.Join(root, dir))
	}
	env = append(env,
		"NIX_REMOTE=local",
		"NIX_USER_CONF_FILES=",
		"NIX_CONFIG=sandbox = false\nbuild-users-group =\nsubstituters =\nmax-jobs = 1\nexperimental-features = nix-command flakes",
	)
	return Store{Runner: child.Local{Env: env, Dir: root}, Dir: filepath.Join(root, "store")}
}

// Flake writes a flake without inputs and returns its reference without
// attribute. The text is the body of its outputs, in which `system NAME EXTRA`
// is a derivation that writes NAME to its output.
func (s Store) Flake(t testing.TB, outputs string) string {
	t.Helper()
	dir, err := os.MkdirTemp(s.Runner.Dir, "flake-")
	if err != nil {
		t.Fatal(err)
	}
	text := `{
  outputs = _: let
    system = name: extra: derivation ({
      inherit name;
      system = "` + Platform() + `";
      builder = "/bin/sh";
      args = [ "-c" "echo ${name} > $out" ];
    } // extra);
  in ` + outputs + `;
}
`
	if err := os.WriteFile(filepath.Join(dir, "flake.nix"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return "path:" + dir
}
