package verdict

import (
	"strings"
	"testing"
)

func TestMoved(t *testing.T) {
	then := Sighting{MachineID: "m", BootID: "b", Running: "/a", Profile: "/a", BootEntry: "/a", Generation: 7}
	for _, tt := range []struct {
		name    string
		then    Sighting
		machine string
		now     Host
		want    []string
	}{
		{"nothing", then, "m", Host{BootID: "b", Running: "/a", Profile: "/a", BootEntry: "/a", Generation: 7}, nil},
		{"what a plan doesn't rest on", then, "m", Host{BootID: "b", Running: "/a", Profile: "/a", BootEntry: "/a", Generation: 7, Booted: "/x", FailedUnits: []string{"u"}, Lists: []string{"start-list"}}, nil},
		{"a switch", then, "m", Host{BootID: "b", Running: "/b", Profile: "/b", BootEntry: "/b", Generation: 8}, []string{"runs /b", "profile leads to /b", "boots /b"}},
		{"a test of another system", then, "m", Host{BootID: "b", Running: "/b", Profile: "/a", BootEntry: "/a", Generation: 7}, []string{"it runs /b, and the plan has seen /a"}},
		{"a reboot", then, "m", Host{BootID: "c", Running: "/a", Profile: "/a", BootEntry: "/a", Generation: 7}, []string{"rebooted"}},
		{"another machine", then, "n", Host{BootID: "b", Running: "/a", Profile: "/a", BootEntry: "/a", Generation: 7}, []string{"machine id is n"}},
		{"the same system as another generation", then, "m", Host{BootID: "b", Running: "/a", Profile: "/a", BootEntry: "/a", Generation: 9}, []string{"generation is 9"}},
		{"another default entry", then, "m", Host{BootID: "b", Running: "/a", Profile: "/a", BootEntry: "", Generation: 7}, []string{"boots nothing that can be read"}},
		{"a host that was down", Sighting{Missed: "unreachable: no route"}, "m", Host{BootID: "b"}, []string{"has not seen", "no route"}},
	} {
		got := Moved(tt.then, tt.machine, tt.now)
		if (got == "") != (tt.want == nil) {
			t.Errorf("%s: %q", tt.name, got)
		}
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q in it", tt.name, got, want)
			}
		}
	}
}
