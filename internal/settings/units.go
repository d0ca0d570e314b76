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
