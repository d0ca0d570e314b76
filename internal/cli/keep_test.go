package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

func TestCacheDir(t *testing.T) {
	for _, tt := range []struct {
		env  []string
		want string
	}{
		{[]string{"HOME=/h", "XDG_CACHE_HOME=/c"}, "/c"},
		{[]string{"HOME=/h", "XDG_CACHE_HOME=c"}, "/h/.cache"},
		{[]string{"HOME=/h", "XDG_CACHE_HOME="}, "/h/.cache"},
		{[]string{"HOME="}, ""},
		{nil, ""},
	} {
		if got := cacheDir(Process{Env: tt.env}); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.env, got, tt.want)
		}
	}
}

// What became of an evaluation in the cache is said.
func TestEvaluationCacheIsSaid(t *testing.T) {
	store := nixtest.New(t)
	ref := store.Flake(t, `{ nodes = [ { name = "web"; toplevel = system "web" {}; } ]; }`) + "#nodes"
	caches := t.TempDir()
	env := append(store.Runner.Env, "XDG_CACHE_HOME="+caches)
	explain := func(flags ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		code := Run(t.Context(), Process{Args: append([]string{"explain", ref}, flags...), Env: env, Dir: store.Runner.Dir, Stdout: &out, Stderr: &errs})
		if code != 0 || !strings.HasPrefix(out.String(), "web\n") {
			t.Fatalf("%q: exit code %d\n%s%s", flags, code, out.String(), errs.String())
		}
		return errs.String()
	}
	const cached = "deploy-ssh: evaluation: cached\n"
	dir := filepath.Join(caches, "deploy-ssh", "evaluations")
	if said := explain("--no-eval-cache"); strings.Contains(said, cached) {
		t.Errorf("--no-eval-cache: %s", said)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("--no-eval-cache: something was kept")
	}
	for i, want := range []bool{false, true, true} {
		if said := explain(); strings.Contains(said, cached) != want {
			t.Errorf("run %d: %s", i, said)
		}
	}
	if said := explain("--no-eval-cache"); strings.Contains(said, cached) {
		t.Errorf("--no-eval-cache: %s", said)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if said, want := explain(), "note: the evaluation cache is not used: "+dir+" has the mode 0777, which lets others in\n"; !strings.Contains(said, want) || strings.Contains(said, cached) {
		t.Errorf("want %s, said %s", want, said)
	}
}

// Who asks about one node of many doesn't wait for ssh to be asked about all.
func TestExplainAsksAboutTheNamedNodesOnly(t *testing.T) {
	tooltest.Need(t, "ssh")
	store := nixtest.New(t)
	ref := store.Flake(t, `{ nodes = builtins.genList (i: { name = "node-${toString i}"; toplevel = abort "no system is needed"; }) 40; }`) + "#nodes"
	bin, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	real, err := store.Runner.Find("ssh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte("#!/bin/sh\necho >>"+calls+"\nexec "+real+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := ""
	for _, entry := range store.Runner.Env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	env := append(store.Runner.Env, "PATH="+bin+":"+path)
	asked := func(args ...string) int {
		t.Helper()
		_ = os.Remove(calls)
		var out, errs bytes.Buffer
		if code := Run(t.Context(), Process{Args: args, Env: env, Dir: store.Runner.Dir, Stdout: &out, Stderr: &errs}); code != 0 {
			t.Fatalf("%q: exit code %d\n%s", args, code, errs.String())
		}
		lines, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		return len(lines)
	}
	one, all := asked("explain", ref, "node-7"), asked("explain", ref)
	if one > 5 || all < 40 {
		t.Errorf("ssh is run %d times for one node of 40, %d times for all", one, all)
	}
}
