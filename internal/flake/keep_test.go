package flake

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
)

// counting runs the real Nix and counts its evaluations.
type counting struct {
	child.Runner
	mu          sync.Mutex
	evaluations int
	// before is called with the arguments of each evaluation before it begins.
	before func(args []string)
}

func (c *counting) Run(ctx context.Context, command child.Command) (child.Result, error) {
	if command.Name == "nix" && command.Args[0] == "eval" {
		c.mu.Lock()
		c.evaluations++
		c.mu.Unlock()
		if c.before != nil {
			c.before(command.Args)
		}
	}
	return c.Runner.Run(ctx, command)
}

// keeping is a flake whose evaluations are kept.
type keeping struct {
	t     *testing.T
	store nixtest.Store
	run   *counting
	keep  *Keep
	// dir is the folder of the flake, ref its reference.
	dir, ref string
}

func newKeeping(t *testing.T, outputs string) *keeping {
	t.Helper()
	store := nixtest.New(t)
	path, err := store.Runner.Find("nix")
	if err != nil {
		t.Fatal(err)
	}
	ref := store.Flake(t, outputs)
	return &keeping{
		t: t, store: store, run: &counting{Runner: store.Runner}, dir: strings.TrimPrefix(ref, "path:"), ref: ref + "#nodes",
		keep: &Keep{Base: t.TempDir(), Nix: path, Env: store.Runner.Env},
	}
}

// evaluate evaluates and says whether an evaluation was run.
func (k *keeping) evaluate(change func(*Request)) (m Map, evaluated bool) {
	k.t.Helper()
	r := Request{Ref: k.ref}
	if change != nil {
		change(&r)
	}
	before := k.run.evaluations
	m, err := Evaluator{Runner: k.run, Keep: k.keep}.Evaluate(context.Background(), r)
	if err != nil {
		k.t.Fatal(err)
	}
	evaluated = k.run.evaluations > before
	if evaluated == m.Evaluation.Cached {
		k.t.Errorf("evaluated %v, and the map says %+v", evaluated, m.Evaluation)
	}
	return m, evaluated
}

// expect evaluates, and checks whether an evaluation was run and what the first node's system is called.
func (k *keeping) expect(what string, evaluated bool, name string, change func(*Request)) Map {
	k.t.Helper()
	m, got := k.evaluate(change)
	if got != evaluated {
		k.t.Errorf("%s: evaluated %v, want %v: %+v", what, got, evaluated, m.Evaluation)
	}
	if !strings.HasSuffix(m.Nodes[0].Toplevel, "-"+name) {
		k.t.Errorf("%s: the system is %s, want %s", what, m.Nodes[0].Toplevel, name)
	}
	if len(m.Evaluation.Warnings) > 0 {
		k.t.Errorf("%s: warned %q", what, m.Evaluation.Warnings)
	}
	return m
}

func (k *keeping) write(name, text string) {
	k.t.Helper()
	path := filepath.Join(k.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeping) git(args ...string) {
	k.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", k.dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	cmd.Env = k.store.Runner.Env
	if out, err := cmd.CombinedOutput(); err != nil {
		k.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

const named = `{ nodes = [ { name = "web"; toplevel = system (builtins.readFile ./name) {}; } { name = "db"; toplevel = system "db" {}; } ]; }`

// Everything that an evaluation depends on makes it another one.
func TestKeptEvaluation(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, named)
	k.write("name", "one")
	k.expect("the first run", true, "one", nil)
	m := k.expect("the same again", false, "one", nil)
	if m.Evaluation.Unkept != "" || len(m.Nodes) != 2 || m.Nodes[1].DrvPath == "" {
		t.Errorf("got %+v", m)
	}
	k.write("name", "two")
	k.expect("a changed file", true, "two", nil)
	k.expect("the same again", false, "two", nil)
	k.write("added", "")
	k.expect("an added file", true, "two", nil)

	env, nix := k.keep.Env, k.keep.Nix
	inEnvironment := func(entries ...string) func() {
		return func() {
			changed := slices.Concat(env, entries)
			k.keep.Env, k.run.Runner = changed, child.Local{Env: changed, Dir: k.store.Runner.Dir}
		}
	}
	for _, test := range []struct {
		what    string
		request func(*Request)
		outside func()
	}{
		{what: "a selection", request: selecting(t, "web", "")},
		{what: "another selection", request: selecting(t, "w*", "")},
		{what: "an exclusion", request: selecting(t, "", "db")},
		{what: "settings alone", request: func(r *Request) { r.SettingsOnly = true }},
		{what: "given systems", request: func(r *Request) { r.Given = []string{"db"} }},
		{what: "a setting", request: func(r *Request) { r.Options = [][2]string{{"cores", "7"}} }},
		{what: "another value of it", request: func(r *Request) { r.Options = [][2]string{{"cores", "8"}} }},
		{what: "a setting among Nix's arguments", request: func(r *Request) { r.Args = []string{"--option", "cores", "9"} }},
		{what: "an argument of Nix", request: func(r *Request) { r.Args = []string{"--no-write-lock-file"} }},
		{what: "traces", request: func(r *Request) { r.ShowTrace = true }},
		{what: "NIX_CONFIG", outside: inEnvironment("NIX_CONFIG=" + variable(env, "NIX_CONFIG") + "\ncores = 11")},
		{what: "a variable of Nix", outside: inEnvironment("NIX_SHOW_STATS=0")},
		{what: "nix.conf", outside: func() {
			if err := os.MkdirAll(variable(env, "NIX_CONF_DIR"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(variable(env, "NIX_CONF_DIR"), "nix.conf"), []byte("cores = 12\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{what: "answers about flakes' own settings", outside: func() {
			path := trustedSettings(env)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("{}"), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{what: "another program of the same version", outside: func() {
			k.keep.Nix = filepath.Join(t.TempDir(), "nix")
			if err := os.WriteFile(k.keep.Nix, []byte("#!/bin/sh\nexec "+nix+" \"$@\"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		{what: "another version", outside: func() { k.run.Runner = versioned{k.run.Runner} }},
	} {
		if test.outside != nil {
			test.outside()
		}
		for _, evaluated := range []bool{true, false} {
			m, got := k.evaluate(test.request)
			if got != evaluated || m.Evaluation.Unkept != "" || len(m.Evaluation.Warnings) > 0 {
				t.Errorf("%s: evaluated %v, want %v: %+v", test.what, got, evaluated, m.Evaluation)
			}
		}
	}
}

// versioned is a Nix of another version.
type versioned struct{ child.Runner }

func (v versioned) Run(ctx context.Context, c child.Command) (child.Result, error) {
	if slices.Equal(c.Args, []string{"--version"}) {
		return child.Result{Stdout: []byte("nix (Nix) 2.99\n")}, nil
	}
	return v.Runner.Run(ctx, c)
}

// The program's own expression is part of the key.
func TestKeptByExpression(t *testing.T) {
	k := kept{parts: [][]byte{[]byte("a")}}
	if k.key("x") == k.key("y") {
		t.Error("another expression has the same key")
	}
	if other := (kept{parts: [][]byte{[]byte("b")}}); k.key("x") == other.key("x") {
		t.Error("what an answer depends on is not in its key")
	}
}

func TestKeptEvaluationOfGitTrees(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, named)
	k.write("name", "one")
	k.git("init", "-q")
	k.git("add", ".")
	k.ref = k.dir + "#nodes"
	k.expect("never committed", true, "one", nil)
	k.expect("never committed, again", false, "one", nil)
	k.git("commit", "-qm", "one")
	k.expect("clean", true, "one", nil)
	k.expect("clean, again", false, "one", nil)
	k.write("name", "two")
	k.expect("dirty", true, "two", nil)
	k.expect("dirty, again", false, "two", nil)
	k.write("name", "three")
	k.expect("dirtier", true, "three", nil)
	k.write("name", "two")
	k.expect("as dirty as before", false, "two", nil)
	k.git("checkout", "-q", "name")
	k.expect("clean as before", false, "one", nil)
	k.write("untracked", "")
	k.expect("what Git does not know, Nix does not see", false, "one", nil)
	k.git("add", "untracked")
	k.expect("an added file", true, "one", nil)
	k.git("commit", "-qm", "same map, other revision")
	k.expect("another revision", true, "one", nil)
	// Git calls the tree clean, and newer Nix evaluates what is in it.
	k.git("update-index", "--skip-worktree", "name")
	k.write("name", "one!")
	k.evaluate(nil)
	k.write("name", "one?")
	if m, evaluated := k.evaluate(nil); !evaluated {
		t.Errorf("an edit that Git was told to overlook: %+v", m.Evaluation)
	}
	k.git("update-index", "--no-skip-worktree", "name")
	k.git("checkout", "-q", "name")
	// A linked worktree keeps its HEAD elsewhere.
	linked := filepath.Join(k.store.Runner.Dir, "linked")
	k.git("worktree", "add", "-q", linked)
	k.dir, k.ref = linked, linked+"#nodes"
	k.expect("a linked worktree", true, "one", nil)
	k.expect("a linked worktree, again", false, "one", nil)
}

// inputs is a flake with two inputs in folders beside it.
func inputs(t *testing.T) *keeping {
	k := newKeeping(t, `{ nodes = [ ]; }`)
	k.write("../input/name", "one")
	k.write("../input/flake.nix", `{ outputs = _: { name = builtins.readFile ./name; }; }`)
	k.write("../source/name", "x")
	k.write("flake.nix", `{
	  inputs.input.url = "path:`+filepath.Join(k.store.Runner.Dir, "input")+`";
	  inputs.source = { url = "path:`+filepath.Join(k.store.Runner.Dir, "source")+`"; flake = false; };
	  outputs = { self, input, source }: { nodes = [ { name = "web"; toplevel = derivation {
	    name = builtins.readFile "${source}/name" + input.name; system = "`+nixtest.Platform()+`"; builder = "/bin/sh"; }; } ]; };
	}`)
	return k
}

func TestKeptEvaluationOfInputs(t *testing.T) {
	t.Parallel()
	k := inputs(t)
	// The first run writes the lock file.
	k.expect("the first run", true, "xone", nil)
	k.expect("the same again", false, "xone", nil)
	overriding := func(name, to string) func(*Request) {
		return func(r *Request) { r.Args = []string{"--override-input", name, to} }
	}
	k.write("../other/name", "y")
	other := "path:" + filepath.Join(k.store.Runner.Dir, "other")
	k.expect("an overridden input", true, "yone", overriding("source", other))
	k.expect("an overridden input, again", false, "yone", overriding("source", other))
	k.expect("without it", false, "xone", nil)
	k.write("../other/name", "z")
	k.expect("an overridden input that has changed", true, "zone", overriding("source", other))
	// Another lock: the inputs as they are now.
	k.write("../input/name", "two")
	if err := os.Remove(filepath.Join(k.dir, "flake.lock")); err != nil {
		t.Fatal(err)
	}
	k.expect("another lock", true, "xtwo", nil)
	k.expect("another lock, again", false, "xtwo", nil)
}

// Newer Nix reads an input that is not locked in its tree, also where Git calls it clean, and
// names its revision.
func TestKeptEvaluationOfACommittedInput(t *testing.T) {
	t.Parallel()
	k := inputs(t)
	dir, input := k.dir, filepath.Join(k.store.Runner.Dir, "input")
	overridden := func(r *Request) { r.Args = []string{"--override-input", "input", "git+file://" + input} }
	k.dir = input
	k.git("init", "-q")
	k.git("add", ".")
	k.git("commit", "-qm", "one")
	k.dir = dir
	k.expect("a committed input", true, "xone", overridden)
	k.expect("a committed input, again", false, "xone", overridden)
	k.dir = input
	k.git("update-index", "--skip-worktree", "name")
	k.write("name", "two")
	k.dir = dir
	if m, evaluated := k.evaluate(overridden); !evaluated {
		t.Errorf("an edit that Git was told to overlook: %+v", m.Evaluation)
	}
	// What has a revision may be gone from here, or never have had a tree.
	if err := os.Rename(filepath.Join(input, ".git"), filepath.Join(input, "git")); err != nil {
		t.Fatal(err)
	}
	s := source{committed: []string{input, filepath.Join(input, "git"), filepath.Join(input, "nowhere")}}
	if s.watchCommitted(); s.trees != nil {
		t.Errorf("%q are watched", s.trees)
	}
}

// An edit that Nix saw in place of what the key names, and that was undone since,
// must not be kept under it.
func TestAnEditDuringTheEvaluationIsNotKept(t *testing.T) {
	t.Parallel()
	for _, git := range []bool{false, true} {
		k := newKeeping(t, named)
		k.write("name", "one")
		if git {
			k.git("init", "-q")
			k.git("add", ".")
			k.ref = k.dir + "#nodes"
		}
		name := filepath.Join(k.dir, "name")
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		undone := func() {
			k.write("name", "one")
			if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
		}
		k.run.before = func([]string) { k.write("name", "two") }
		m := k.expect("an edit meanwhile", true, "two", nil)
		if !strings.Contains(m.Evaluation.Unkept, "changed while it was evaluated") {
			t.Errorf("kept: %+v", m.Evaluation)
		}
		undone()
		k.run.before = nil
		k.expect("the edit was undone", true, "one", nil)
		// Undone before the evaluation ends.
		k.write("more", "")
		if git {
			k.git("add", "more")
		}
		k.run.Runner = undoing{k.run.Runner, func() { k.write("name", "two") }, undone}
		m = k.expect("an edit that is undone", true, "two", nil)
		if !strings.Contains(m.Evaluation.Unkept, "changed while it was evaluated") {
			t.Errorf("kept: %+v", m.Evaluation)
		}
		k.run.Runner = k.store.Runner
		k.expect("after it", true, "one", nil)
	}
}

// undoing changes a flake for as long as it is evaluated.
type undoing struct {
	child.Runner
	do, undo func()
}

func (u undoing) Run(ctx context.Context, c child.Command) (child.Result, error) {
	if c.Name == "nix" && c.Args[0] == "eval" {
		u.do()
		defer u.undo()
	}
	return u.Runner.Run(ctx, c)
}

func TestNotKept(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, named)
	k.write("name", "one")
	for _, test := range []struct {
		what, why string
		change    func(*Request)
	}{
		{"impure", "--impure", func(r *Request) { r.Impure = true }},
		{"impure behind --", "the argument --impure for Nix", func(r *Request) { r.Args = []string{"--impure"} }},
		{"impure as a setting", "pure-eval", func(r *Request) { r.Options = [][2]string{{"pure-eval", "false"}} }},
		{"impure as a setting behind --", "pure-eval", func(r *Request) { r.Args = []string{"--option", "pure-eval", "false"} }},
		{"another argument", "the argument --refresh for Nix", func(r *Request) { r.Args = []string{"--refresh"} }},
	} {
		for range 2 {
			m, evaluated := k.evaluate(test.change)
			if !evaluated || !strings.Contains(m.Evaluation.Unkept, test.why) || len(m.Evaluation.Warnings) > 0 {
				t.Errorf("%s: evaluated %v, %+v", test.what, evaluated, m.Evaluation)
			}
		}
	}
	// Nix's answer to what its settings are doesn't know those of the flake.
	k.write("flake.nix", `{ nixConfig.pure-eval = false; outputs = _: { nodes = [ { name = "web"; toplevel = derivation {
	  name = "web"; system = "`+nixtest.Platform()+`"; builder = builtins.getEnv "FROM_OUTSIDE" + "/bin/sh"; }; } ]; }; }`)
	for _, value := range []string{"one", "two"} {
		k.run.Runner = child.Local{Env: append(k.store.Runner.Env, "FROM_OUTSIDE="+value), Dir: k.store.Runner.Dir}
		m, evaluated := k.evaluate(func(r *Request) { r.Options = [][2]string{{"accept-flake-config", "true"}} })
		if !evaluated || !strings.Contains(m.Evaluation.Unkept, "flake.nix mentions the setting pure-eval") {
			t.Errorf("impure by its own settings: evaluated %v, %+v", evaluated, m.Evaluation)
		}
	}
	base := k.keep.Base
	k.keep.Base = ""
	if m, evaluated := k.evaluate(nil); !evaluated || !strings.Contains(m.Evaluation.Unkept, "XDG_CACHE_HOME") {
		t.Errorf("without a directory: %+v", m.Evaluation)
	}
	k.keep.Base = base
	if entries, err := filepath.Glob(filepath.Join(base, "deploy-ssh", "evaluations", "*")); err != nil || len(entries) > 0 {
		t.Errorf("kept all the same: %q, %v", entries, err)
	}
}

// The derivations that an answer names may have been collected since.
func TestKeptEvaluationWithoutItsDerivations(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, named)
	k.write("name", "one")
	m := k.expect("the first run", true, "one", nil)
	if _, err := k.store.Runner.Run(context.Background(), child.Command{Name: "nix-store", Args: []string{"--delete", m.Nodes[1].DrvPath}}); err != nil {
		t.Fatal(err)
	}
	k.expect("after a collection", true, "one", nil)
	if _, err := os.Stat(m.Nodes[1].DrvPath); err != nil {
		t.Error(err)
	}
	k.expect("the same again", false, "one", nil)
}

// A node that doesn't evaluate is evaluated each time, and the others are not.
func TestFailuresAreNotKept(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, `{ nodes = { a.toplevel = throw "no a"; b.toplevel = system "b" {}; c.toplevel = throw "no c"; }; }`)
	for i, want := range []int{3, 2, 2} {
		before := k.run.evaluations
		m, _ := k.evaluate(nil)
		if got := k.run.evaluations - before; got != want {
			t.Errorf("run %d: %d evaluations, want %d", i, got, want)
		}
		if got := brief(m); got != "a:failed b c:failed by name" || !strings.Contains(m.Nodes[0].EvalError, "no a") || !strings.Contains(m.Nodes[2].EvalError, "no c") {
			t.Errorf("run %d: %s: %q", i, got, m.Nodes[0].EvalError)
		}
	}
	k = newKeeping(t, `{ nodes = { a.toplevel = abort "no a"; b.toplevel = system "b" {}; }; }`)
	// The joint evaluation and the failed node's are repeated; the map's and the good node's are kept.
	for i, want := range []int{4, 2} {
		before := k.run.evaluations
		m, _ := k.evaluate(nil)
		if got := k.run.evaluations - before; got != want || brief(m) != "a:failed b by name" {
			t.Errorf("abort, run %d: %d evaluations, want %d: %s", i, got, want, brief(m))
		}
	}
	k = newKeeping(t, `{ nodes.web.hots = "x"; }`)
	for range 2 {
		if _, err := (Evaluator{Runner: k.run, Keep: k.keep}).Evaluate(context.Background(), Request{Ref: k.ref}); err == nil {
			t.Error("a map with a fault was taken")
		}
	}
	if k.run.evaluations < 2 {
		t.Error("a map with a fault was kept")
	}
}

// A cache that others can write to, or that is damaged, is not used, and that is said.
func TestCacheThatCantBeTrusted(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, named)
	k.write("name", "one")
	k.expect("the first run", true, "one", nil)
	dir := filepath.Join(k.keep.Base, "deploy-ssh", "evaluations")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	entry := filepath.Join(dir, entries[0].Name())
	if err := os.WriteFile(entry, []byte("another answer"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, evaluated := k.evaluate(nil)
	if want := "a kept evaluation is not used: " + entry + " is damaged"; !evaluated || len(m.Evaluation.Warnings) != 1 || m.Evaluation.Warnings[0] != want {
		t.Errorf("damaged: evaluated %v, %+v, want %s", evaluated, m.Evaluation, want)
	}
	k.expect("mended", false, "one", nil)
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	m, evaluated = k.evaluate(nil)
	if want := "the evaluation cache is not used: " + dir + " has the mode 0770, which lets others in"; !evaluated || len(m.Evaluation.Warnings) != 1 || m.Evaluation.Warnings[0] != want {
		t.Errorf("writable: evaluated %v, %+v, want %s", evaluated, m.Evaluation, want)
	}
}

// What an evaluation says is said again; what Nix did meanwhile is not.
func TestKeptWarnings(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, `{ nodes = [ { name = "web"; toplevel = builtins.trace "a warning\nof two lines" (system "web" {}); } ]; }`)
	for _, evaluated := range []bool{true, false} {
		var said strings.Builder
		k.expect("warned", evaluated, "web", func(r *Request) { r.Stderr = &said })
		if !strings.Contains(said.String(), "trace: a warning\nof two lines\n") {
			t.Errorf("evaluated %v: said %q", evaluated, said.String())
		}
	}
	const mixed = "warning: a\ncopying path '/nix/store/x'\ntrace: b\n  c\nthese 2 paths\n  /nix/store/y\nbuilding '/nix/store/z.drv'...\nevaluation warning: d"
	if got, want := lasting([]byte(mixed)), "warning: a\ntrace: b\n  c\nevaluation warning: d"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
