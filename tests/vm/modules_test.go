package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// nixpkgsLib is nixpkgs' lib in NIXPKGS_LIB, else the stand-in for it.
func nixpkgsLib(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("NIXPKGS_LIB")
	if dir == "" {
		dir = "stand-in/lib.nix"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The modules make what they should; `nix flake check` asks the same with
// nixpkgs' own lib.
func TestModules(t *testing.T) {
	everyNix(t, func(t *testing.T, n nixOf) {
		dir, err := filepath.Abs(".")
		if err != nil {
			t.Fatal(err)
		}
		out, err := n.run("nix-instantiate", "--eval", "--strict", "--json", "--expr", fmt.Sprintf(
			"(import %s/modules.nix { lib = import %s; }).tests", dir, nixpkgsLib(t)))
		if err != nil {
			t.Fatal(err)
		}
		var tests map[string]struct{ Got, Want any }
		if err := json.Unmarshal([]byte(out), &tests); err != nil {
			t.Fatal(err)
		}
		if len(tests) < 15 {
			t.Errorf("there are only %d tests", len(tests))
		}
		for name, test := range tests {
			if diff := cmp.Diff(test.Want, test.Got); diff != "" {
				t.Errorf("%s: -want +got\n%s", name, diff)
			}
		}
	})
}
