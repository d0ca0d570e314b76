package verdict

import (
	"fmt"
	"strings"
)

// Sighting is a host as a plan has seen it.
type Sighting struct {
	// Missed is why the host was not seen; the other fields are empty then.
	Missed string
	// MachineID, BootID, Running, Profile, Generation and BootEntry are as in [Host].
	MachineID, BootID, Running, Profile, BootEntry string
	Generation                                     int
}

// Moved says in what a host is another one than when a plan was made; empty when it
// is in nothing that the plan rests on.
func Moved(then Sighting, machineID string, now Host) string {
	if then.Missed != "" {
		return "the plan has not seen this host: " + then.Missed
	}
	var moved []string
	is := func(what, was, is string) {
		if was != is {
			moved = append(moved, fmt.Sprintf("%s %s, and the plan has seen %s", what, orNone(is), orNone(was)))
		}
	}
	is("its machine id is", then.MachineID, machineID)
	is("it runs", then.Running, now.Running)
	is("its system profile leads to", then.Profile, now.Profile)
	if then.Profile == now.Profile && then.Generation != now.Generation {
		is("its generation is", fmt.Sprint(then.Generation), fmt.Sprint(now.Generation))
	}
	is("it boots", then.BootEntry, now.BootEntry)
	if then.BootID != now.BootID {
		moved = append(moved, "it was rebooted")
	}
	return strings.Join(moved, "; ")
}

func orNone(s string) string {
	if s == "" {
		return "nothing that can be read"
	}
	return s
}
