package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	step   = regexp.MustCompile(`(?m)^\s*(?:- )?run:(.*)$`)
	target = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

// Workflows call the project's own commands, so that all of them can be run anywhere.
func TestWorkflowsCallOwnCommands(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d workflows: %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		steps := step.FindAllStringSubmatch(string(text), -1)
		if len(steps) == 0 {
			t.Errorf("%s runs nothing", path)
		}
		for _, m := range steps {
			words := strings.Fields(m[1])
			switch {
			case len(words) == 1 && words[0] == ".ci/run":
			case len(words) > 1 && words[0] == "make" && targets[words[1]]:
			case len(words) > 2 && words[0] == "nix" && words[1] == "flake" && words[2] == "check":
			case len(words) > 2 && words[0] == "gh" && words[1] == "release" && words[2] == "create":
			default:
				t.Errorf("%s: %q is no command of the project", filepath.Base(path), strings.TrimSpace(m[1]))
			}
		}
	}
}
