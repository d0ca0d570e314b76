package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/history"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// However a map is written, it is the same one; and no other is.
func TestMapSum(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"fleet/hosts/db", "other"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, flake := range []string{"fleet/flake.nix", "other/flake.nix"} {
		if err := os.WriteFile(filepath.Join(base, flake), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("fleet", base+"/link"); err != nil {
		t.Fatal(err)
	}
	sum := func(dir, ref string, nixArgs ...string) string {
		return mapSum(Process{Dir: filepath.Join(base, dir)}, ref, nixArgs, false)
	}
	fleet := sum("fleet", ".#nodes")
	for _, same := range []string{
		sum("fleet", "./#nodes"), sum("fleet/hosts", ".#nodes"), sum("fleet/hosts/db", "../..#nodes"), sum("link", ".#nodes"), sum("other", "../fleet#nodes"),
		sum("other", base+"/fleet#nodes"), sum("other", "path:"+base+"/link#nodes"), sum("other", "git+file://"+base+"/fleet#nodes"), sum("fleet", ".#nodes", "--refresh"), sum("fleet", "#nodes"),
	} {
		if same != fleet {
			t.Errorf("%s, want %s", same, fleet)
		}
	}
	if mapSum(Process{Dir: filepath.Join(base, "fleet")}, ".#nodes", nil, true) == fleet {
		t.Error("the system of all nodes has the sum of the nodes")
	}
	all := map[string]bool{fleet: true}
	others := []string{
		sum("other", ".#nodes"), sum("fleet", ".#hosts"), sum("fleet", "github:me/fleet#nodes"), sum("fleet", ".?dir=sub#nodes"), sum("fleet", ""), sum("other", ""),
		sum("fleet", "nodes", "-f", "fleet.nix"), sum("other", "nodes", "-f", "fleet.nix"), sum("fleet", "nodes", "--expr", "import ./x"),
	}
	for _, other := range others {
		all[other] = true
	}
	if len(all) != len(others)+1 {
		t.Errorf("%d sums for %d maps", len(all), len(others)+1)
	}
	if sum("fleet", "nodes", "-f", "x.nix") != sum("other", "nodes", "--file", "../fleet/x.nix") {
		t.Error("one file has two sums")
	}
}

func TestRetried(t *testing.T) {
	lasts := []history.Last{
		{Node: "good", Verdict: verdict.Switched, Good: true},
		{Node: "cut"},
		{Node: "failed", Verdict: verdict.Locked},
		{Node: "other", Verdict: verdict.Unknown},
		{Node: "gone", Verdict: verdict.Unreachable},
	}
	nodes := []flake.Node{{Name: "new", Selected: true}, {Name: "other"}, {Name: "failed", Selected: true}, {Name: "cut", Selected: true}, {Name: "good", Selected: true}}
	left, notes := retried(lasts, nodes)
	if diff := cmp.Diff([]string{"cut", "failed"}, left); diff != "" {
		t.Errorf("left to do (-want +got):\n%s", diff)
	}
	want := "retrying cut (cut off), failed (locked)\nnot retried, since no longer in the map: gone (unreachable)\nnot retried, since no run of them that was to come as far is on record: new"
	if diff := cmp.Diff(want, strings.Join(notes, "\n")); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if left, notes := retried(lasts[:1], nodes[4:]); left != nil || notes != nil {
		t.Errorf("where all went well: %q, %q", left, notes)
	}
}

func TestEffect(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"switch", "boot", true}, {"switch", "test", true}, {"", "switch", true},
		{"switch", "dry-activate", false}, {"switch", "build", false}, {"push", "build", false}, {"push", "push", true},
	} {
		if got := effect(tt.a) == effect(tt.b); got != tt.same {
			t.Errorf("%s and %s: %v, want %v", tt.a, tt.b, got, tt.same)
		}
	}
}

func TestCovers(t *testing.T) {
	head := func(text string) history.Head {
		goal, reboot := strings.CutSuffix(text, "+reboot")
		return history.Head{Goal: goal, Reboot: reboot}
	}
	for _, tt := range []struct {
		run, other string
		want       bool
	}{
		{"switch", "switch", true}, {"switch", "test", true}, {"switch", "boot", true}, {"", "switch", true}, {"switch", "", true},
		{"test", "switch", false}, {"boot", "switch", false}, {"test", "boot", false}, {"boot", "test", false}, {"test", "", false}, {"test", "test", true},
		{"build", "build", true}, {"push", "push", true}, {"dry-activate", "dry-activate", true},
		{"boot+reboot", "boot", true}, {"boot", "boot+reboot", false}, {"switch+reboot", "boot+reboot", true},
	} {
		if got := covers(head(tt.run), head(tt.other)); got != tt.want {
			t.Errorf("%q covers %q: %v, want %v", tt.run, tt.other, got, tt.want)
		}
	}
}

// A run that went well says nothing of what it was not to do.
func TestRetryable(t *testing.T) {
	p := Process{Dir: t.TempDir()}
	f := reportFlags{dir: "reports"}
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	run := func(goal string, verdicts map[string]verdict.Verdict) {
		t.Helper()
		began = began.Add(time.Minute)
		w := history.NewWriter(filepath.Join(p.Dir, f.dir), history.Head{Verb: "apply", Map: "m", Goal: goal, Time: began})
		nodes := slices.Sorted(maps.Keys(verdicts))
		records := []report.Record{{Plan: &report.Plan{Nodes: nodes}}}
		for _, node := range nodes {
			v := verdicts[node]
			records = append(records, report.Record{Result: &report.Result{Node: node, Verdict: v, Class: v.Row().Class}})
		}
		for _, r := range append(records, report.Record{Summary: &report.Summary{}}) {
			if err := w.Handle(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func(goal, want string) {
		t.Helper()
		runs, err := f.retryable(p, history.Head{Verb: "apply", Map: "m", Goal: goal})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, last := range history.Lasts(runs) {
			if !last.Good {
				names = append(names, last.Node)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: left to do are %q, want %q", goal, got, want)
		}
	}
	run("switch", map[string]verdict.Verdict{"db": verdict.Switched, "web": verdict.Unfinalized})
	run("test", map[string]verdict.Verdict{"db": verdict.Degraded, "web": verdict.Unchanged})
	left("switch", "db web")
	left("test", "db")
	run("boot", map[string]verdict.Verdict{"db": verdict.Staged, "web": verdict.Staged})
	left("switch", "db web")
	left("boot", "")
	run("", map[string]verdict.Verdict{"db": verdict.Unchanged, "web": verdict.Switched})
	left("switch", "")
	left("test", "")
}

func TestReportDir(t *testing.T) {
	for _, tt := range []struct {
		env   []string
		given string
		want  string
	}{
		{[]string{"HOME=/home/me", "XDG_STATE_HOME=/state"}, "", "/state/deploy-ssh"},
		{[]string{"HOME=/home/me", "XDG_STATE_HOME=relative"}, "", "/home/me/.local/state/deploy-ssh"},
		{[]string{"HOME=/home/me"}, "", "/home/me/.local/state/deploy-ssh"},
		{[]string{"HOME=/home/me"}, "reports", "/work/reports"},
		{nil, "/reports", "/reports"},
		{nil, "", ""},
	} {
		got, err := reportDir(Process{Env: tt.env, Dir: "/work"}, tt.given)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q %q: %s, %v; want %s", tt.env, tt.given, got, err, tt.want)
		}
	}
}
