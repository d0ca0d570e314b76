package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// run runs the program where neither Nix nor ssh can be found.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("PATH", "/nonexistent")
	var out, err bytes.Buffer
	code = Run(context.Background(), Process{Args: args, Dir: t.TempDir(), Stdout: &out, Stderr: &err})
	return code, out.String(), err.String()
}

func TestSlips(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"nodes", `did you mean ".#nodes"?`},
		{"fleet", `did you mean ".#fleet"?`},
		{".", `did you mean ".#nodes"?`},
		{"./fleet", `did you mean "./fleet#nodes"?`},
		{"github:acme/fleet", `did you mean "github:acme/fleet#nodes"?`},
		{"chek", `did you mean "check"?`},
		{"chek .#nodes", `did you mean "check"?`},
		{"aply .#nodes", `did you mean "apply"?`},
		{"status nodes", `did you mean ".#nodes"?`},
		{"apply aply", `did you mean ".#aply"?`},
		{"check nodes web1", `did you mean ".#nodes"?`},
		{"explain .", `did you mean ".#nodes"?`},
		{".#nodes --confrim 1m", `unknown flag: --confrim; did you mean "--confirm"?`},
		{"status .#nodes --no-evl", `did you mean "--no-eval"?`},
		{"status .#nodes --reboot", "unknown flag: --reboot\n"},
		{".#nodes web1 web2", "nodes are selected by --on web1,web2"},
		{".#nodes .#more", "one flake reference is wanted, not 2"},
		{".#nodes -x", "unknown shorthand flag: 'x'"},
	} {
		code, stdout, stderr := run(t, strings.Fields(tt.args)...)
		if code != verdict.ExitUsage || stdout != "" || !strings.Contains(stderr, tt.want) || !strings.Contains(stderr, "--help shows how it is used") {
			t.Errorf("deploy-ssh %s: exit code %d, want %d and %s:\n%s", tt.args, code, verdict.ExitUsage, tt.want, stderr)
		}
	}
	// These are Nix's to judge.
	for _, args := range []string{".#nodes", ".#", "nodes -- --file fleet.nix", "check nodes web1 -- -f fleet.nix"} {
		if _, _, stderr := run(t, strings.Fields(args)...); !strings.Contains(stderr, "nix and ssh must be on the PATH") {
			t.Errorf("deploy-ssh %s: Nix was not called:\n%s", args, stderr)
		}
	}
}

// The help that a slip leads to has what was looked for.
func TestHintOfHelp(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"chek", "hint: deploy-ssh --help"},
		{".#nodes --confrim 1m", "hint: deploy-ssh apply --help"},
		{".#nodes -x", "hint: deploy-ssh apply --help"},
		{".#nodes --goal swich", "hint: deploy-ssh apply --help"},
		{"status .#nodes --no-evl", "hint: deploy-ssh status --help"},
		{"exec .#nodes", "hint: deploy-ssh exec --help"},
	} {
		if _, _, stderr := run(t, strings.Fields(tt.args)...); !strings.Contains(stderr, tt.want) {
			t.Errorf("deploy-ssh %s: want %s:\n%s", tt.args, tt.want, stderr)
		}
	}
}

// What Nix says before its error is told once, though the map is evaluated twice.
func TestNoFlakeIsToldOnce(t *testing.T) {
	store := nixtest.New(t)
	dir := filepath.Join(store.Runner.Dir, "empty")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), Process{Args: []string{".#nodes"}, Env: store.Runner.Env, Dir: dir, Stdout: &stdout, Stderr: &stderr})
	if code != verdict.ExitUsage || strings.Count(stderr.String(), "searching up") > 1 || strings.Count(stderr.String(), "could not find a flake.nix") != 1 {
		t.Errorf("exit code %d:\n%s", code, &stderr)
	}
}
