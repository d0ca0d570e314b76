package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

const (
	pathA = "/nix/store/11111111111111111111111111111111-nixos-system-a"
	pathB = "/nix/store/22222222222222222222222222222222-nixos-system-b"
)

func TestParseGiven(t *testing.T) {
	dir := t.TempDir()
	for name, target := range map[string]string{"result": "/etc", "dangling": "/nix/store/none"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		items []string
		want  []given
		err   []string
	}{
		{items: nil},
		{items: []string{"a=" + pathA, "b=" + pathB + "/"}, want: []given{{"a", pathA}, {"b", pathB}}},
		{items: []string{pathA}, err: []string{"NAME=/nix/store/…"}},
		{items: []string{"a="}, err: []string{"--store-path a=: a node's name and a store path"}},
		{items: []string{"a b=" + pathA}, err: []string{`"a b"`, "letters, digits"}},
		{items: []string{"a=" + pathA, "a=" + pathB}, err: []string{"--store-path a=" + pathB, "named once"}},
		{items: []string{"a=" + pathA + "/bin/x"}, err: []string{"is no store path"}},
		{items: []string{"a=/nix/store/a"}, err: []string{"is no store path"}},
		{items: []string{"a=" + pathA + ".drv"}, err: []string{"is a derivation", "nix-store --realise " + pathA + ".drv"}},
		{items: []string{"a=result"}, err: []string{"/etc is no store path"}},
		{items: []string{"a=dangling"}, err: []string{"neither a store path nor a link"}},
		{items: []string{"a=none", "b=x"}, err: []string{"--store-path a=none", "--store-path b=x"}},
	} {
		got, err := parseGiven(tt.items, dir)
		if (err != nil) != (tt.err != nil) || !cmp.Equal(got, tt.want, cmp.AllowUnexported(given{})) {
			t.Errorf("%q: %v, %v", tt.items, got, err)
		}
		for _, words := range tt.err {
			if err != nil && !strings.Contains(err.Error(), words) {
				t.Errorf("%q: the error lacks %q: %v", tt.items, words, err)
			}
		}
	}
}

func selectors(t *testing.T, text string) []flake.Selector {
	t.Helper()
	if text == "" {
		return nil
	}
	s, err := flake.ParseSelectors(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRoster(t *testing.T) {
	env := settings.Environment{Nodes: map[string]settings.SSH{"a": {}, "b": {Host: "10.0.0.2"}, "web1": {}, "web2": {}}}
	for _, tt := range []struct {
		name          string
		given         []given
		on, exclude   string
		want, notwant string // selected and other nodes
		err           []string
	}{
		{name: "those with a system", given: []given{{"b", pathB}, {"a", pathA}}, want: "b a", notwant: "web1 web2"},
		{name: "one of them", given: []given{{"b", pathB}, {"a", pathA}}, on: "a", want: "a", notwant: "b web1 web2"},
		{name: "all but one", given: []given{{"b", pathB}, {"a", pathA}}, exclude: "?", err: []string{"the selection leaves no node"}},
		{name: "a glob", given: []given{{"web2", pathB}, {"web1", pathA}}, on: "web*", want: "web2 web1", notwant: "a b"},
		{name: "selected without a system", given: []given{{"web1", pathA}}, on: "web*", err: []string{"node web2: it has no system", "--store-path web2=PATH"}},
		{name: "unknown nodes", given: []given{{"wbe1", pathA}, {"zz", pathA}},
			err: []string{`--store-path wbe1: DEPLOY_SSH_NODES has no such node; did you mean "web1"?`, "--store-path zz"}},
		{name: "unknown selection", given: []given{{"web1", pathA}}, on: "wbe1,@eu", err: []string{`"wbe1" selects no node; did you mean "web1"?`, `"@eu" selects no node`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := roster(env, tt.given, selectors(t, tt.on), selectors(t, tt.exclude))
			if (err != nil) != (tt.err != nil) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			for _, words := range tt.err {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("the error lacks %q: %v", words, err)
				}
			}
			if err != nil {
				return
			}
			var selected, others []string
			for _, n := range m.Nodes {
				if n.Selected {
					selected = append(selected, n.Name)
				} else {
					others = append(others, n.Name)
				}
				if n.Selected != (n.Toplevel != "") {
					t.Errorf("%s: selected %t with the toplevel %q", n.Name, n.Selected, n.Toplevel)
				}
			}
			if got := strings.Join(selected, " "); got != tt.want || strings.Join(others, " ") != tt.notwant {
				t.Errorf("selected %q beside %q, want %q beside %q", selected, others, tt.want, tt.notwant)
			}
		})
	}
}

func TestOverride(t *testing.T) {
	m := flake.Map{Ref: ".#nodes", Nodes: []flake.Node{
		{Name: "a", Selected: true}, {Name: "b", Selected: true, Toplevel: "evaluated", DrvPath: "drv"}, {Name: "c"},
	}}
	if err := override(m, []given{{"a", pathA}, {"c", pathB}}); err != nil {
		t.Fatal(err)
	}
	want := []flake.Node{{Name: "a", Selected: true, Toplevel: pathA}, {Name: "b", Selected: true, Toplevel: "evaluated", DrvPath: "drv"}, {Name: "c"}}
	if diff := cmp.Diff(want, m.Nodes); diff != "" {
		t.Error(diff)
	}
	err := override(m, []given{{"d", pathA}, {"zzz", pathA}})
	if err == nil || !strings.Contains(err.Error(), "--store-path d: .#nodes has no such node") || !strings.Contains(err.Error(), "zzz") {
		t.Errorf("error %v", err)
	}
}

// Without a flake reference Nix evaluates nothing, and what is wrong is said before
// any host is contacted.
func TestUnused(t *testing.T) {
	m := flake.Map{Nodes: []flake.Node{{Name: "web", Selected: true}, {Name: "db"}, {Name: "log"}}}
	if got := unused(m, []given{{"web", pathA}}); got != nil {
		t.Errorf("a selected node: %q", got)
	}
	want := []string{"--store-path has systems of nodes that are not selected: log, db"}
	if diff := cmp.Diff(want, unused(m, []given{{"log", pathA}, {"web", pathA}, {"db", pathB}})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWithoutFlake(t *testing.T) {
	bin, called := t.TempDir(), filepath.Join(t.TempDir(), "called")
	for name, script := range map[string]string{
		// One store path is missing.
		"nix-store": "#!/bin/sh\nfor path; do case $path in *" + filepath.Base(pathB) + ") echo $path ;; esac; done\n",
		"nix":       "#!/bin/sh\necho \"$@\" >>" + called + "\nexit 1\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	nodes := `DEPLOY_SSH_NODES={"nodes":{"web":{"host":"192.0.2.1"},"db":null}}`
	for _, tt := range []struct {
		args, nodes string
		err         []string
	}{
		{args: "apply --store-path web=" + pathB, nodes: nodes, err: []string{"--store-path web=" + pathB + ": it is not valid in this machine's store", "nix-store --realise " + pathB}},
		{args: "--store-path web=" + pathA + " --on db", nodes: nodes, err: []string{"node db: it has no system", "--store-path db=PATH"}},
		{args: "status --store-path wbe=" + pathA, nodes: nodes, err: []string{`--store-path wbe: DEPLOY_SSH_NODES has no such node; did you mean "web"?`}},
		{args: "check --store-path web=" + pathA, err: []string{"DEPLOY_SSH_NODES has no such node"}},
		{args: "--store-path web=" + pathA + " -- --impure", nodes: nodes, err: []string{"arguments for Nix need a flake reference"}},
		{args: "apply", nodes: nodes, err: []string{"a flake reference"}},
		{args: "--store-path web=" + pathA, nodes: `DEPLOY_SSH_NODES={"nodes":{"web":{"hots":"a"}}}`, err: []string{"hots", "host"}},
	} {
		var out, errs bytes.Buffer
		code := Run(t.Context(), Process{Args: strings.Fields(tt.args), Env: []string{"PATH=" + bin + ":/usr/bin:/bin", tt.nodes}, Dir: t.TempDir(), Stdout: &out, Stderr: &errs})
		if code != verdict.ExitUsage {
			t.Errorf("%s: exit code %d\n%s%s", tt.args, code, out.String(), errs.String())
		}
		for _, words := range tt.err {
			if !strings.Contains(errs.String(), words) {
				t.Errorf("%s: standard error lacks %q:\n%s", tt.args, words, errs.String())
			}
		}
	}
	if text, err := os.ReadFile(called); err == nil {
		t.Errorf("Nix was called: %s", text)
	}
}
