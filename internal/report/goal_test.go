package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// What a goal does not bring about is not said: neither as a node's turn comes nor at the end.
func TestGoalsAreTold(t *testing.T) {
	const toplevel = "/nix/store/00000000000000000000000000000001-web"
	plain := Announce{Node: "web1", Index: 1, Total: 2, Host: "web1", User: "root", Toplevel: toplevel}
	combined, back, none := plain, plain, plain
	combined.Combined = true
	back.Rollback, back.Toplevel = true, ""
	none.Toplevel = ""
	for _, tt := range []struct {
		goal, plain, combined, back, none, end string
	}{
		{"build", "the build of web for root@web1", "the build of web, the system of all nodes, for root@web1", "the build of an earlier generation for root@web1", "no system to build for root@web1", "built"},
		{"push", "pushing web to root@web1", "pushing web, the system of all nodes, to root@web1", "pushing an earlier generation to root@web1", "no system to deploy to root@web1", "pushed"},
		{"dry-activate", "dry-activating web on root@web1", "dry-activating web, the system of all nodes, on root@web1", "dry-activating an earlier generation on root@web1", "no system to deploy to root@web1", "dry-activated"},
		{"test", "activating web on root@web1", "activating web, the system of all nodes, on root@web1", "activating an earlier generation on root@web1", "no system to deploy to root@web1", "as asked"},
		{"boot", "making the boot entry of web on root@web1", "making the boot entry of web, the system of all nodes, on root@web1", "making the boot entry of an earlier generation on root@web1", "no system to deploy to root@web1", "as asked"},
		{"switch", "deploying web to root@web1", "deploying web, the system of all nodes, to root@web1", "going back on root@web1", "no system to deploy to root@web1", "as wanted"},
		// Of a stream without a goal.
		{"", "deploying web to root@web1", "deploying web, the system of all nodes, to root@web1", "going back on root@web1", "no system to deploy to root@web1", "as wanted"},
	} {
		t.Run(tt.goal, func(t *testing.T) {
			var out, errs bytes.Buffer
			text := &Text{Out: &out, Err: &errs}
			for _, r := range []Record{
				{Run: &Run{Source: ".#nodes", Goal: tt.goal}},
				{Announce: &plain}, {Announce: &combined}, {Announce: &back}, {Announce: &none},
				{Result: &Result{Node: "web1", Verdict: verdict.Staged}},
				{Result: &Result{Node: "web2", Verdict: verdict.Refused}},
				{Summary: &Summary{Failed: []string{"web2"}}},
			} {
				if err := text.Handle(r); err != nil {
					t.Fatal(err)
				}
			}
			want := []string{"deploy-ssh: evaluating .#nodes"}
			for _, what := range []string{tt.plain, tt.combined, tt.back, tt.none} {
				want = append(want, "deploy-ssh: [1/2] web1: "+what)
			}
			if diff := cmp.Diff(want, strings.Split(errs.String(), "\n")[:5]); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if end := "\n1 of 2 nodes " + tt.end + ", in 0.0s; not: web2\n"; !strings.HasSuffix(out.String(), end) {
				t.Errorf("the end is not %q:\n%s", end, out.String())
			}
		})
	}
}
