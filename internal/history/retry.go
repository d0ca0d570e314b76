package history

import (
	"slices"

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
// the last run: one of a few nodes says nothing about the others.
func Lasts(runs []Run) []Last {
	var all []Last
	seen := map[string]bool{}
	for i := range runs {
		results := map[string]Last{}
		for _, r := range runs[i].Results {
			results[r.Node] = Last{Node: r.Node, Run: &runs[i], Verdict: r.Verdict, Good: r.Class == verdict.Good}
		}
		for _, node := range runs[i].Nodes {
			if seen[node] {
				continue
			}
			seen[node] = true
			last, ok := results[node]
			if !ok {
				last = Last{Node: node, Run: &runs[i]}
			}
			all = append(all, last)
		}
	}
	return all
}
