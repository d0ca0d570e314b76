// Package layout keeps the layers of the program as ARCHITECTURE.md tells them.
package layout

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/deploy-ssh/deploy-ssh/"

// pkg is what `go list` tells of a package.
type pkg struct {
	ImportPath string
	Doc        string
	Imports    []string
	// GoFiles are those that are no tests.
	GoFiles []string
}

func packages(t *testing.T) map[string]pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,GoFiles", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]pkg{}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for decoder.More() {
		var p pkg
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(p.ImportPath, module)] = p
	}
	return all
}

// io are imports by which a package reaches the world outside.
var io = []string{"os", "os/exec", "net", "net/http", "syscall", module + "internal/child", module + "internal/ssh"}

func TestLayers(t *testing.T) {
	for _, rule := range []struct {
		of, not []string
		why     string
	}{
		{[]string{"internal/verdict", "internal/settings", "internal/plan", "internal/schema", "internal/nearest", "internal/peers", "internal/report", "internal/rollout", "internal/bytesize"}, io,
			"decisions are functions of values, so that every case of them is a line in a table"},
		{[]string{"internal/verdict", "internal/settings", "internal/schema", "internal/nearest", "internal/child"},
			[]string{module + "internal/deploy", module + "internal/cli", module + "internal/report"},
			"data flows one way"},
		{[]string{"internal/ssh", "internal/hostkeys", "internal/facts", "internal/closure", "internal/activate", "internal/flake"},
			[]string{module + "internal/deploy", module + "internal/cli", module + "internal/report", module + "internal/plan"},
			"a phase does its work and returns values; only deploy knows all phases and makes records"},
	} {
		all := packages(t)
		for _, name := range rule.of {
			p, ok := all[name]
			if !ok {
				t.Errorf("the rule names the package %s, which is gone", name)
			}
			for _, imported := range p.Imports {
				if slices.Contains(rule.not, imported) {
					t.Errorf("%s imports %s, but %s", name, strings.TrimPrefix(imported, module), rule.why)
				}
			}
		}
	}
}

// Some things have one user each.
func TestOneUser(t *testing.T) {
	all := packages(t)
	for imported, users := range map[string][]string{
		module + "internal/activate": {"internal/deploy"},
		module + "internal/facts":    {"internal/deploy", "internal/activate"},
		module + "internal/deploy":   {"internal/cli"},
		module + "internal/history":  {"internal/cli"},
		"os/exec":                    {"internal/child", "internal/ssh", "internal/cli", "internal/release", "internal/release/cmd/release"},
		"github.com/spf13/cobra":     {"internal/cli", "internal/docs", "tests/rig/cmd/rig"},
	} {
		for name, p := range all {
			if slices.Contains(p.Imports, imported) && !slices.Contains(users, name) &&
				!(imported == "os/exec" && strings.HasPrefix(name, "tests/") || name == "internal/tooltest") {
				t.Errorf("%s imports %s; only %v may", name, strings.TrimPrefix(imported, module), users)
			}
		}
	}
	for name, p := range all {
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module+"tests/") && !strings.HasPrefix(name, "tests/") {
				t.Errorf("%s, part of the program, imports %s", name, imported)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for name, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", name)
		}
	}
}
