package verdict

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Identity is what of a system decides whether a running system can be switched to it.
type Identity struct {
	// Interface is the init-interface-version; empty when unknown.
	Interface string
	// Inhibitors is switch-inhibitors, a JSON object of strings; empty when there is none.
	Inhibitors string
}

// Foreseen tells, before anything is copied or switched, why the host would
// refuse to switch from the running to the wanted system; empty when nothing is
// known against it.
//
// The rules are switch-to-configuration's: another init interface ends it with
// 100, and so does a key of switch-inhibitors that both systems have with
// different values; see nixos/modules/system/activation in nixpkgs.
func Foreseen(running, wanted Identity, noCheck bool) string {
	if running.Interface != "" && wanted.Interface != "" && running.Interface != wanted.Interface {
		return fmt.Sprintf("the init interface changes (%s -> %s), which needs a reboot", running.Interface, wanted.Interface)
	}
	if noCheck {
		return ""
	}
	var now, then map[string]string
	if json.Unmarshal([]byte(running.Inhibitors), &now) != nil || json.Unmarshal([]byte(wanted.Inhibitors), &then) != nil {
		// None, or of a form that only the host's own check knows.
		return ""
	}
	var changes []string
	for _, key := range slices.Sorted(maps.Keys(then)) {
		if old, both := now[key]; both && old != then[key] {
			changes = append(changes, fmt.Sprintf("%s: %s -> %s", key, old, then[key]))
		}
	}
	if len(changes) == 0 {
		return ""
	}
	return "critical components change (" + strings.Join(changes, ", ") + "), which needs a reboot"
}
