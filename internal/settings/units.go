package settings

import (
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/schema"
)

// CheckUnit says what is wrong with a unit name or glob.
func CheckUnit(glob string) error {
	// Unit names are ASCII, and the patterns of the schema have no way to write a closing bracket.
	ascii := !strings.ContainsFunc(glob, func(r rune) bool { return r == 0 || r > 0x7e })
	if !ascii || !schema.Matches("unit", glob) || strings.Contains(glob, "]") {
		return fmt.Errorf("%swanted %s", schema.Shown("unit", glob), schema.Description("unit"))
	}
	return nil
}

// checkMachineID says how a machine id that was written as a UUID is to be written.
func checkMachineID(id string) error {
	if bare := strings.ToLower(strings.ReplaceAll(id, "-", "")); bare != id && schema.Matches("machineId", bare) {
		return fmt.Errorf("%swrite it as in the host's /etc/machine-id: %q", schema.Shown("machineId", id), bare)
	}
	return nil
}

// MatchUnit tells whether a glob matches a unit's whole name. In a glob `*`
// stands for any characters, none too, and `?` for one; everything else, the
// backslash of an escaped name too, for itself.
func MatchUnit(glob, unit string) bool {
	// The last star takes as little as possible; only it is ever tried again.
	g, u, star, from := 0, 0, -1, 0
	for u < len(unit) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, from = g, u
			g++
		case g < len(glob) && (glob[g] == '?' || glob[g] == unit[u]):
			g++
			u++
		case star >= 0:
			from++
			g, u = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(glob[g:], "*") == ""
}
