package deploy

import (
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

func TestWrongHost(t *testing.T) {
	host := facts.Host{HostName: "web1", MachineID: "aa"}
	for _, tt := range []struct {
		name string
		host facts.Host
		want flake.Expect
		text string
	}{
		{"nothing expected", host, flake.Expect{}, ""},
		{"as expected", host, flake.Expect{HostName: "web1", MachineID: "aa"}, ""},
		{"another name", host, flake.Expect{HostName: "web2"}, "its host name is web1, expected web2"},
		{"another machine", host, flake.Expect{MachineID: "bb"}, "its machine id is aa, expected bb"},
		{"both", host, flake.Expect{HostName: "x", MachineID: "y"}, "its machine id is aa, expected y; its host name is web1, expected x"},
		{"says nothing", facts.Host{}, flake.Expect{MachineID: "bb"}, "its machine id is not to be read, expected bb"},
	} {
		if got := wrongHost(tt.host, tt.want); got != tt.text {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.text)
		}
	}
}

func TestTwins(t *testing.T) {
	var m machines
	for _, tt := range []struct{ id, node, want string }{
		{"1", "a", ""}, {"2", "b", ""}, {"1", "a", ""}, {"1", "c", "a"}, {"2", "d", "b"},
	} {
		if got := m.twin(tt.id, tt.node); got != tt.want {
			t.Errorf("node %s with id %s is the twin of %q, want %q", tt.node, tt.id, got, tt.want)
		}
	}
}

// A weakened pin is in every record of its node, once, and in no other node's.
func TestWeakenedPinIsSaid(t *testing.T) {
	var got []report.Record
	f := &Fleet{
		Identities: map[string]*ssh.Identity{"a": {Pinned: true, Weakened: []string{"X y (options[0])"}}, "b": {Pinned: true}},
		Emit:       func(r report.Record) { got = append(got, r) },
	}
	notes := make([]string, 1, 8) // with room, which a careless append would share
	for _, name := range []string{"a", "b", "no identity"} {
		d := &deployment{fleet: f, node: plan.Node{Name: name}}
		got = nil
		d.emit(report.Record{Phase: &report.Phase{Notes: notes}})
		d.emit(report.Record{Result: &report.Result{Notes: notes}})
		want := 0
		if name == "a" {
			want = 1
		}
		for _, text := range []string{strings.Join(got[0].Phase.Notes, "\n"), strings.Join(got[1].Result.Notes, "\n")} {
			if n := strings.Count(text, "weakened by X y (options[0])"); n != want {
				t.Errorf("node %s: a record says %d times that the pin is weakened, want %d", name, n, want)
			}
		}
	}
}
