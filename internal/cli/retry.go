package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/history"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
)

// nothingToRetry ends a retry well, with no host contacted.
type nothingToRetry struct{ notes []string }

func (e nothingToRetry) Error() string { return strings.Join(e.notes, "\n") }

// tell says that there is nothing to do, and ends the program well.
func (e nothingToRetry) tell(out *output, asJSON bool, began time.Time) error {
	out.emit(report.Record{Plan: &report.Plan{Nodes: []string{}, Notes: e.notes}})
	if asJSON {
		out.emit(report.Record{Summary: &report.Summary{Time: time.Now(), Failed: []string{}, Seconds: time.Since(began).Seconds()}})
	}
	return exitCode(0)
}

// narrow makes of the selection that part of it which is left to do by the runs on
// record. The map is read without its systems for that. The error is a
// [nothingToRetry] when no node is left.
func (f *mapFlags) narrow(ctx context.Context, p Process, out *output, env settings.Environment, r *flake.Request, systems []given) error {
	runs, err := f.retry()
	if err != nil {
		return err
	}
	var m flake.Map
	if r.Ref == "" {
		m, err = roster(env, systems, r.Include, r.Exclude)
	} else {
		question := *r
		question.SettingsOnly = true
		m, err = f.evaluate(ctx, p, out, question)
	}
	if err != nil {
		return err
	}
	left, notes := retried(history.Lasts(runs), m.Nodes)
	if len(left) == 0 {
		notes = append(notes, fmt.Sprintf("nothing to retry: of the selected nodes of %s, none that is on record had a last run that did not end well (newest report: %s, begun %s)",
			m.Ref, runs[0].Name, when(runs[0].Time)))
		return nothingToRetry{notes}
	}
	selectors, err := flake.ParseSelectors(strings.Join(left, ","))
	if err != nil {
		return err
	}
	r.Include, r.Exclude, f.notes = selectors, nil, notes
	return nil
}

// retried are the selected nodes whose last run did not end well, with what there is
// to say of them and of those that are no longer in the map.
func retried(lasts []history.Last, nodes []flake.Node) (left, notes []string) {
	var again, gone []string
	for _, last := range lasts {
		if last.Good {
			continue
		}
		what := fmt.Sprintf("%s (%s)", last.Node, or(string(last.Verdict), "cut off"))
		i := slices.IndexFunc(nodes, func(n flake.Node) bool { return n.Name == last.Node })
		switch {
		case i < 0:
			gone = append(gone, what)
		case nodes[i].Selected:
			left, again = append(left, last.Node), append(again, what)
		}
	}
	if len(again) > 0 {
		notes = append(notes, "retrying "+some(again))
	}
	if len(gone) > 0 {
		notes = append(notes, "not retried, since no longer in the map: "+some(gone))
	}
	var unknown []string
	for _, n := range nodes {
		if n.Selected && !slices.ContainsFunc(lasts, func(l history.Last) bool { return l.Node == n.Name }) {
			unknown = append(unknown, n.Name)
		}
	}
	if len(unknown) > 0 {
		notes = append(notes, "not retried, since no run of them that was to come as far is on record: "+some(unknown))
	}
	return left, notes
}

// some is a list that a person reads, however long it is.
func some(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
