package facts

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

//go:embed history.sh
var historyFunctions string

// ObserveAll is [Observe] with the host's history: see [Host.Past].
func ObserveAll(toplevel string) string {
	return Functions + historyFunctions + "observe '" + toplevel + "'\nhistory\n"
}

// Generation is a generation of the system profile.
type Generation struct {
	Number int
	// Made is when the profile first led to it.
	Made time.Time
	// System is its toplevel, Label that one's nixos-version; empty when it has none.
	System, Label string
}

// parseGeneration reads "NUMBER SECONDS TOPLEVEL LABEL".
func parseGeneration(value string) (Generation, error) {
	part := strings.SplitN(value, " ", 4)
	if len(part) != 4 {
		return Generation{}, fmt.Errorf("generation %q", value)
	}
	n, err := strconv.Atoi(part[0])
	if err != nil || n < 0 {
		return Generation{}, fmt.Errorf("generation %q", value)
	}
	seconds, err := strconv.ParseInt(part[1], 10, 64)
	if err != nil {
		return Generation{}, fmt.Errorf("generation %q", value)
	}
	return Generation{Number: n, Made: time.Unix(seconds, 0).UTC(), System: part[2], Label: part[3]}, nil
}
