package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/internal/history"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

func newReport(p Process) *cobra.Command {
	var dir string
	var list, asJSON bool
	cmd := &cobra.Command{
		Use:   "report [RUN] [flags]",
		Short: "Show what came of an earlier run",
		Long: fmt.Sprintf(`Shows the results of a run on record as they were shown at its end; of one that was
cut off, what it knew. A run's name begins with the time of its beginning, in UTC. Nobody
is contacted. The last %d runs of apply and rollback are kept, without what Nix and the
hosts printed.`, history.MaxRuns),
		Example: "  deploy-ssh report\n  deploy-ssh report --list\n  deploy-ssh report 20260131T120000.000Z-1234 --json",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return usageError{fmt.Errorf("the name of one run is wanted, not %d: %q", len(args), args)}
			case list && len(args) > 0:
				return usageError{fmt.Errorf("%q with --list: all runs are listed", args[0])}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			where, err := reportDir(p, dir)
			if err != nil {
				return err
			}
			runs, err := history.Heads(where)
			if err != nil {
				return err
			}
			switch {
			case len(runs) == 0:
				return fmt.Errorf("there is no report in %s", where)
			case list:
				return listRuns(p.Stdout, where, runs, asJSON)
			}
			chosen := runs[0]
			if len(args) > 0 {
				if chosen, err = named(runs, args[0]); err != nil {
					return err
				}
			}
			if chosen, err = history.Load(where, chosen); err != nil {
				return err
			}
			return showRun(p.Stdout, chosen, asJSON)
		},
	}
	cmd.Flags().StringVar(&dir, "report", "", "`DIR`, "+reportMeaning)
	cmd.Flags().BoolVar(&list, "list", false, "list the runs, the newest first")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the run's records, as JSON lines, or the list as JSON")
	return cmd
}

// named is the run of that name.
func named(runs []history.Run, name string) (history.Run, error) {
	name = strings.TrimSuffix(filepath.Base(name), ".jsonl")
	for _, run := range runs {
		if run.Name == strings.TrimPrefix(name, "run-") {
			return run, nil
		}
	}
	return history.Run{}, usageError{fmt.Errorf("there is no report %q; deploy-ssh report --list shows which there are", name)}
}

// listed is a run in a list.
type listed struct {
	Run     string    `json:"run"`
	Time    time.Time `json:"time"`
	Verb    string    `json:"verb"`
	Goal    string    `json:"goal"`
	Source  string    `json:"source"`
	Outcome string    `json:"outcome"`
}

func listRuns(w io.Writer, dir string, runs []history.Run, asJSON bool) error {
	all := []listed{}
	for _, run := range runs {
		run, err := history.Load(dir, run)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another run has just removed it
		}
		if err != nil {
			return err
		}
		all = append(all, listed{run.Name, run.Time, run.Verb, run.Goal, run.Source, outcome(run)})
	}
	if asJSON {
		return printJSON(w, all)
	}
	// A run's name has the time at which it began, and what is longest stands last.
	rows := [][]string{{"RUN", "VERB", "GOAL", "OUTCOME", "MAP"}}
	for _, l := range all {
		rows = append(rows, []string{l.Run, l.Verb, l.Goal, l.Outcome, report.Printable(l.Source)})
	}
	_, err := io.WriteString(w, report.Table(rows, widthOf(w)))
	return err
}

// outcome is what came of a run, in a few words.
func outcome(run history.Run) string {
	good := 0
	for _, r := range run.Results {
		if r.Verdict.Good() {
			good++
		}
	}
	text := fmt.Sprintf("%d of %d %s", good, len(run.Nodes), report.Done(run.Goal))
	switch {
	case run.Going:
		return text + " so far"
	case run.Summary == nil:
		return text + ", cut off"
	case run.Summary.Interrupted:
		return text + ", interrupted"
	}
	return text
}

// showRun shows a run as its end did.
func showRun(w io.Writer, run history.Run, asJSON bool) error {
	var handler report.Handler = report.NewJSON(w, false)
	records := run.Records
	if !asJSON {
		if _, err := fmt.Fprintf(w, "%s %s, goal %s, begun %s (run %s)\n\n", run.Verb, report.Printable(run.Source), run.Goal, when(run.Time), run.Name); err != nil {
			return err
		}
		handler, records = &report.Text{Out: w, Err: io.Discard}, ended(run)
	}
	for _, r := range records {
		if err := handler.Handle(r); err != nil {
			return err
		}
	}
	return nil
}

// ended are the results and the summary of a run, also of one that had no time for them,
// after what was started.
func ended(run history.Run) []report.Record {
	records := []report.Record{{Run: &report.Run{Source: run.Source, Goal: run.Goal}}}
	summary := report.Summary{Failed: []string{}}
	results := map[string]report.Result{}
	for _, r := range run.Results {
		results[r.Node] = r
	}
	for _, node := range run.Nodes {
		r, ok := results[node]
		if !ok {
			r = report.Result{Node: node, Verdict: verdict.NotStarted, Reason: "the run was cut off before"}
			if run.Begun[node] {
				r.Verdict, r.Reason = verdict.Unknown, "the run was cut off before it had a result"
			}
			if run.Going {
				r.Reason = "the run is still going"
			}
			row := r.Verdict.Row()
			r.Class, r.Meaning, r.Next = row.Class, row.Meaning, row.Next
		}
		if !r.Verdict.Good() {
			summary.Failed = append(summary.Failed, node)
		}
		records = append(records, report.Record{Result: &r})
	}
	if run.Summary != nil {
		summary = *run.Summary
	}
	return append(records, report.Record{Summary: &summary})
}
