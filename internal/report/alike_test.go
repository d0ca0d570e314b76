package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

func TestAlike(t *testing.T) {
	of := func(node string, v verdict.Verdict) Result { return Result{Node: node, Verdict: v} }
	for _, tt := range []struct {
		name    string
		results []Result
		want    []Group
	}{
		{"nothing", nil, nil},
		{"all good", []Result{of("a", verdict.Switched), of("b", verdict.Unchanged)}, nil},
		{"mixed", []Result{
			of("a", verdict.LoginRefused), of("b", verdict.Unreachable), of("c", verdict.Switched),
			of("d", verdict.Unreachable), of("e", verdict.LoginRefused), of("f", verdict.NotStarted),
		}, []Group{
			{verdict.LoginRefused, []string{"a", "e"}}, {verdict.Unreachable, []string{"b", "d"}}, {verdict.NotStarted, []string{"f"}},
		}},
	} {
		if diff := cmp.Diff(tt.want, Alike(tt.results)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
