package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Group is nodes that came to the same verdict, in list order.
type Group struct {
	Verdict verdict.Verdict `json:"verdict"`
	Nodes   []string        `json:"nodes"`
}

// Alike groups the nodes that are not as wanted by their verdicts. The groups are in
// the order of their first nodes.
func Alike(results []Result) []Group {
	var groups []Group
	for _, r := range results {
		if r.Verdict.Good() {
			continue
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Verdict == r.Verdict })
		if i < 0 {
			i = len(groups)
			groups = append(groups, Group{Verdict: r.Verdict})
		}
		groups[i].Nodes = append(groups[i].Nodes, r.Node)
	}
	return groups
}

// together are the verdicts of which a person wants to see all nodes in one place:
// there was no way to the host, or it lacks what a switch needs, or it was left out.
var together = []verdict.Verdict{
	verdict.Unpinned, verdict.Unreachable, verdict.HostKeyRefused, verdict.LoginRefused,
	verdict.ElevationRefused, verdict.Unusable, verdict.Stale, verdict.NotStarted,
}

// failures tells of each node that is not as wanted what happened, what it means and
// what to do; of nodes that belong together, in one paragraph.
func failures(results []Result) string {
	var b strings.Builder
	groups := Alike(results)
	for _, r := range results {
		if r.Verdict.Good() {
			if len(r.Notes) > 0 {
				fmt.Fprintf(&b, "\n%s: %s\n", r.Node, r.Verdict)
			}
			for _, note := range r.Notes {
				fmt.Fprintf(&b, "  note: %s\n", Printable(note))
			}
			continue
		}
		of := groups[slices.IndexFunc(groups, func(g Group) bool { return g.Verdict == r.Verdict })]
		switch {
		case len(of.Nodes) == 1 || !slices.Contains(together, r.Verdict):
			b.WriteString(failure(r))
		case of.Nodes[0] == r.Node:
			b.WriteString(sameFailure(of, results))
		}
	}
	return b.String()
}

func failure(r Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s\n  %s\n", r.Node, r.Verdict, r.Meaning)
	if r.Reason != "" {
		fmt.Fprintf(&b, "  %s\n", indented(r.Reason, "  "))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "  note: %s\n", Printable(note))
	}
	if r.Next != "" {
		fmt.Fprintf(&b, "  next: %s\n", r.Next)
	}
	return b.String()
}

// sameFailure is the paragraph of a group. A reason that several nodes have stands once.
func sameFailure(g Group, results []Result) string {
	var b, notes strings.Builder
	var reasons []string
	byReason := map[string][]string{}
	meaning, next := "", ""
	for _, r := range results {
		if r.Verdict != g.Verdict {
			continue
		}
		meaning, next = r.Meaning, r.Next
		if byReason[r.Reason] == nil {
			reasons = append(reasons, r.Reason)
		}
		byReason[r.Reason] = append(byReason[r.Reason], r.Node)
		for _, note := range r.Notes {
			fmt.Fprintf(&notes, "  %s: note: %s\n", r.Node, Printable(note))
		}
	}
	fmt.Fprintf(&b, "\n%s: %s\n  %s\n", g.Verdict, strings.Join(g.Nodes, ", "), meaning)
	for _, reason := range reasons {
		who := strings.Join(byReason[reason], ", ") + ": "
		if len(reasons) == 1 {
			who = ""
		}
		if reason != "" {
			fmt.Fprintf(&b, "  %s%s\n", who, indented(reason, "    "))
		}
	}
	b.WriteString(notes.String())
	if next != "" {
		fmt.Fprintf(&b, "  next: %s\n", next)
	}
	return b.String()
}

func indented(text, by string) string {
	return strings.ReplaceAll(Printable(text), "\n", "\n"+by)
}
