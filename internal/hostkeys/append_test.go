package hostkeys

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sourcegraph/conc"
)

// Several deploys may save keys in one file at once, as OpenTofu runs them: each line
// arrives whole, also where the last one lacked its end before.
func TestAddAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte("last without end"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"last without end"}
	var all conc.WaitGroup
	for i := range 40 {
		lines := []string{fmt.Sprintf("a%d %s", i, strings.Repeat("A", 500)), fmt.Sprintf("b%d %s", i, strings.Repeat("B", 500))}
		want = append(want, lines...)
		all.Go(func() {
			if err := Add(file, lines); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return line == "" })
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d lines, not the %d that were added", len(got), len(want))
	}
}
