package verdict

import (
	"os"
	"strings"
	"testing"
)

// Every exit code stands in the README. The verdicts are in docs/reference, which is
// made from their table.
func TestReadmeNamesExitCodes(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{"| 0 |", "| 1 |", "| 2 |", "| 3 |", "| 4 |", "| 5 |", "| 130 |"} {
		if !strings.Contains(string(readme), code) {
			t.Errorf("README.md does not have the exit code %s", code)
		}
	}
}
