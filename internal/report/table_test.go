package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	rows := [][]string{{"A", "BÄ", "C"}, {"one", "2", "x y"}, {"two", "", "a-long-cell"}, {"über", "much-longer", "z"}}
	for width, want := range map[int]string{
		0: "A     BÄ           C\none   2            x y\ntwo                a-long-cell\nüber  much-longer  z\n",
		// What does not fit goes below, as far as it fits there.
		20: "A     BÄ           C\none   2\n    x y\ntwo\n    a-long-cell\nüber  much-longer  z\n",
		12: "A     BÄ\n    C\none   2\n    x y\ntwo\n    a-long-cell\nüber\n    much-longer\n    z\n",
	} {
		if diff := cmp.Diff(want, Table(rows, width)); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
	}
	if got := Table(nil, 0); got != "" {
		t.Errorf("no rows: %q", got)
	}
}
