package history

import (
	"slices"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Last is the last that is on record of a node.
type Last struct {
	Node string
	// Run is the run that it was in.
	Run *Run
	// Verdict is what came of it; empty for a run that was cut off before.
	Verdict verdict.Verdict
	// Good tells whether the node was as wanted.
	Good bool
}

// LeftUndone is the run without the nodes that ended well. It is what a run has to say that
// was not to come as far as the next one: that it went well there is no word on the rest.
func (r Run) LeftUndone() Run {
	r.Nodes = slices.DeleteFunc(slices.Clone(r.Nodes), func(node string) bool {
		return slices.ContainsFunc(r.Results, func(result report.Result) bool { return result.Node == node && result.Class == verdict.Good })
	})
	return r
}

// Lasts returns the last of each node that the runs, the newest first, were about: in
// the order of the newest run, then of those before. A node's last run counts, not
// the last run: one of a few nodes says nothing about the others. Of runs that went at
// the same time, the one counts that was the last to be at the node.
func Lasts(runs []Run) []Last {
	var all []Last
	var ends []time.Time       // of each of them
	places := map[string]int{} // by node
	for i := range runs {
		results := map[string]report.Result{}
		for _, r := range runs[i].Results {
			results[r.Node] = r
		}
		for _, node := range runs[i].Nodes {
			last, end := Last{Node: node, Run: &runs[i]}, runs[i].end()
			if r, ok := results[node]; ok {
				last.Verdict, last.Good, end = r.Verdict, r.Class == verdict.Good, r.Time
			}
			at, ok := places[node]
			switch {
			case !ok:
				places[node] = len(all)
				all, ends = append(all, last), append(ends, end)
			case end.After(ends[at]):
				all[at], ends[at] = last, end
			}
		}
	}
	return all
}

// end is when the last thing happened that the run has on record.
func (r Run) end() time.Time {
	end := r.Time
	for _, record := range r.Records {
		at := time.Time{}
		switch {
		case record.Announce != nil:
			at = record.Announce.Time
		case record.Phase != nil:
			at = record.Phase.Time
		case record.Result != nil:
			at = record.Result.Time
		}
		if at.After(end) {
			end = at
		}
	}
	return end
}
