package verdict

import (
	"os"
	"strings"
	"testing"
)

// Every verdict and every exit code stands in the README.
func TestReadmeNamesThemAll(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range Table() {
		if !strings.Contains(string(readme), "`"+string(row.Verdict)+"`") {
			t.Errorf("README.md does not name the verdict %s", row.Verdict)
		}
	}
	for _, code := range []string{"| 0 |", "| 1 |", "| 2 |", "| 3 |", "| 4 |", "| 5 |", "| 130 |"} {
		if !strings.Contains(string(readme), code) {
			t.Errorf("README.md does not have the exit code %s", code)
		}
	}
}
