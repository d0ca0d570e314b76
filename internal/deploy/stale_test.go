package deploy

import (
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

func TestStale(t *testing.T) {
	host := facts.Host{MachineID: "m"}
	host.BootID, host.Running = "b", "/a"
	same := verdict.Sighting{MachineID: "m", BootID: "b", Running: "/a"}
	elsewhere := verdict.Sighting{MachineID: "m", BootID: "b", Running: "/b"}
	copied := verdict.Sighting{MachineID: "n", BootID: "b", Running: "/a"}
	unchanged := step{end: &verdict.Decision{Verdict: verdict.Unchanged}}
	for _, tt := range []struct {
		name    string
		planned map[string]verdict.Sighting
		probed  step
		want    string
	}{
		{"no plan", nil, step{}, ""},
		{"as planned", map[string]verdict.Sighting{"n": same}, step{}, ""},
		{"moved", map[string]verdict.Sighting{"n": elsewhere}, step{}, "it runs /a"},
		{"not in the plan", map[string]verdict.Sighting{"x": same}, step{}, "not in it"},
		{"as wanted by now", map[string]verdict.Sighting{"n": elsewhere}, unchanged, ""},
		{"as wanted, but another machine", map[string]verdict.Sighting{"n": copied}, unchanged, "machine id"},
		{"as wanted, but not seen", map[string]verdict.Sighting{"n": {Missed: "unreachable"}}, unchanged, "has not seen"},
	} {
		d := &deployment{fleet: &Fleet{Planned: tt.planned}, host: host}
		d.node.Name = "n"
		got := d.moved(tt.probed)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
