package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/history"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// The list of runs fits 80 columns and leaves nothing out; of each run it says what its goal was.
func TestListOfRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "reports")
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	keep := func(verb, goal, source string, end *report.Summary, verdicts ...verdict.Verdict) {
		t.Helper()
		began = began.Add(time.Minute)
		w := history.NewWriter(dir, history.Head{Verb: verb, Map: "m", Goal: goal, Time: began})
		defer w.Close()
		plan := &report.Plan{}
		records := []report.Record{{Run: &report.Run{Source: source, Goal: goal}}, {Plan: plan}}
		for i, v := range verdicts {
			plan.Nodes = append(plan.Nodes, fmt.Sprint("web", i))
			records = append(records, report.Record{Result: &report.Result{Node: plan.Nodes[i], Verdict: v, Class: v.Row().Class}})
		}
		if end != nil {
			records = append(records, report.Record{Summary: end})
		}
		for _, r := range records {
			if err := w.Handle(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	keep("apply", "switch", ".#nodes", &report.Summary{}, verdict.Switched, verdict.Unchanged)
	keep("apply", "build", "github:example/a-fleet-of-hosts/main#deploy.nodes", &report.Summary{}, verdict.Staged, verdict.BuildFailed)
	keep("rollback", "dry-activate", ".#nodes", &report.Summary{Interrupted: true}, verdict.Staged, verdict.NotStarted)
	keep("apply", "boot", ".#nodes", nil, verdict.Staged)

	code, out, errs := call(t, nil, "report", "--list", "--report", dir)
	if code != verdict.ExitGood || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	got := strings.Split(strings.ReplaceAll(out, fmt.Sprintf(".000Z-%d", os.Getpid()), ".Z"), "\n")
	for i, line := range got {
		got[i] = strings.Join(strings.Fields(line), " ")
	}
	want := []string{
		"RUN VERB GOAL OUTCOME MAP",
		"20260131T120400.Z apply boot 1 of 1 as asked, cut off .#nodes",
		"20260131T120300.Z rollback dry-activate 1 of 2 dry-activated, interrupted", ".#nodes",
		"20260131T120200.Z apply build 1 of 2 built", "github:example/a-fleet-of-hosts/main#deploy.nodes",
		"20260131T120100.Z apply switch 2 of 2 as wanted .#nodes", "",
	}
	// Where a row is broken depends on the length of the process's number.
	if diff := cmp.Diff(strings.Join(want, " "), strings.Join(got, " ")); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, out)
	}

	_, out, _ = call(t, nil, "report", strings.Fields(out)[5], "--report", dir)
	if !strings.Contains(out, "apply .#nodes, goal boot, begun 2026-01-31") || !strings.HasSuffix(out, "\n1 node as asked, in 0.0s\n") {
		t.Errorf("a run is shown as\n%s", out)
	}
}
