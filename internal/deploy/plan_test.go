package deploy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Of two nodes on one machine the one that is first in the list has it.
func TestPlannedTwins(t *testing.T) {
	seen := func(node, machine string) report.Planned {
		return report.Planned{Node: node, Actions: []report.Action{report.ActCopy}, Now: &report.Seen{MachineID: machine}}
	}
	all := []report.Planned{seen("a", "1"), seen("b", "2"), {Node: "c"}, seen("d", "1"), seen("e", ""), seen("f", "")}
	twins(all)
	var wrong []string
	for _, p := range all {
		if p.Verdict == verdict.WrongHost && p.Now == nil && len(p.Actions) == 0 && p.Meaning != "" {
			wrong = append(wrong, p.Node+" "+p.Reason)
		} else if p.Verdict != "" {
			t.Errorf("%s is %+v", p.Node, p)
		}
	}
	if len(wrong) != 1 || !strings.HasPrefix(wrong[0], "d ") || !strings.Contains(wrong[0], "node a") {
		t.Errorf("taken for twins: %q", wrong)
	}
}

func TestNextGeneration(t *testing.T) {
	for _, tt := range []struct {
		name            string
		profile         string
		present, newest int
		newestSystem    string
		want            int
	}{
		{"a new system", "/old", 7, 7, "/old", 8},
		{"after a rollback", "/old", 5, 7, "/other", 8},
		{"the profile leads there", "/new", 7, 7, "/new", 7},
		{"the newest generation is it", "/old", 5, 7, "/new", 7},
		{"the first one", "", 0, 0, "", 1},
	} {
		h := facts.Host{}
		h.Profile, h.Generation = tt.profile, tt.present
		got := nextGeneration(h, closure.Survey{Newest: tt.newest, NewestSystem: tt.newestSystem}, "/new")
		if got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// The actions of a plan are the phases that a deploy would come to.
func TestActions(t *testing.T) {
	host := func(change func(*facts.Host)) facts.Host {
		h := facts.Host{Valid: true}
		h.Running, h.Profile, h.BootEntry, h.Loader = "/new", "/old", "/old", "grub"
		change(&h)
		return h
	}
	for _, tt := range []struct {
		name string
		host facts.Host
		want string
	}{
		{"elsewhere", host(func(h *facts.Host) { h.Running, h.Valid = "/old", false }), "[copy activate boot-entry]"},
		{"pushed", host(func(h *facts.Host) { h.Running = "/old" }), "[activate boot-entry]"},
		{"not finalized", host(func(*facts.Host) {}), "[boot-entry]"},
		{"not finished", host(func(h *facts.Host) { h.Lists = []string{"start-list"} }), "[activate boot-entry]"},
		{"locked", host(func(h *facts.Host) { h.LockHolder = "pid 1" }), "[activate boot-entry]"},
	} {
		d := &deployment{host: tt.host}
		d.node.Toplevel = "/new"
		if got := fmt.Sprint(d.actions()); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestUnwell(t *testing.T) {
	well := facts.Host{}
	well.Running, well.Profile, well.BootEntry, well.Loader = "/a", "/a", "/a", "grub"
	if got := (&deployment{host: well}).unwell(); got != nil {
		t.Errorf("of a host that is well: %q", got)
	}
	ill := well
	ill.Lists, ill.BootEntry, ill.Baseline, ill.BaselineOf = []string{"start-list"}, "/b", true, "/a"
	ill.Records = []facts.Run{{ID: "x", Name: "test", State: "running", Toplevel: "/c"}, {ID: "y", Name: "boot", State: "ended"}}
	want := []string{
		"an earlier switch was not finished: it left start-list",
		"an earlier activation has not ended well: /a",
		"another deploy is under way: run x, test of /c",
		"the host does not boot what it runs",
	}
	if diff := cmp.Diff(want, (&deployment{host: ill}).unwell()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
