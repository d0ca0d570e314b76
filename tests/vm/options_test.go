package vm

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/options.md")

// option is one option of the module system as options.nix lists it.
type option struct {
	Name, Type, Description string
	// Default is JSON; nil when there is none.
	Default  *string
	ReadOnly bool
}

const optionsHead = `# Options for the module system

<!-- Made from nix/types.nix, nix/target.nix and nix/flake-module.nix by
     go test ./tests/vm -run TestOptionsReference -update -->

Three things are for the module system of nixpkgs: a module for hosts, a module for
[flake-parts](https://flake.parts), and option types for those who make a node map with
modules of their own. All take what the program takes, refuse what it refuses, and have one
source for both, [nix/schema.json](../nix/schema.json).
`

// sections are the parts of the reference, in order. An option whose name begins with
// one of below is described elsewhere in it.
var sections = []struct{ key, text, below string }{
	{"target", `
## Hosts: ` + "`nixosModules.target`" + `

A login user for deploy-ssh on a host, and what it may do.

The rule for sudo or doas names the two programs that deploy-ssh starts as root: ` + "`/bin/sh`" + `, which
reads its scripts from standard input, and ` + "`nix-daemon`" + `, for the copy of last resort. **It is not
less than root:** who may start a shell as root may do everything. What it gives is a user
of its own, keys that open no terminal and no agent, no password, and nothing
for anybody else on the host. A narrower rule would be a false promise: a user who may activate
a system of his choice is root, whatever the programs are called.
`, "deploy-ssh.target.node."},
	{"parts", `
## flake-parts: ` + "`flakeModules.default`" + `

The fields of a node are those of [a node](#a-node) below.
`, "deploy-ssh.nodes."},
	{"map", `
## Types: ` + "`lib.types { inherit lib; }`" + `

` + "`nodeMap`" + ` is the type of a whole node map. There are types of its parts, too: ` + "`node`, `listedNode`" + `
(with ` + "`name`), `nodeWith` (a node with a module of your own), `mapDefaults`, `entry`, `shared`,\n`expect`, `environmentMap`" + ` (` + "`DEPLOY_SSH_NODES`" + `), and of the texts.

### A node map
`, "nodes."},
	{"node", `
### A node
`, ""},
}

// The reference is what the modules say, read by Nix.
func TestOptionsReference(t *testing.T) {
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	standIn := filepath.Join(dir, "stand-in/lib.nix")
	out, err := machineNix(t).run("nix-instantiate", "--eval", "--strict", "--json", "--expr",
		fmt.Sprintf("import %s/options.nix { lib = import %s; }", dir, standIn))
	if err != nil {
		t.Fatal(err)
	}
	var lists map[string][]option
	if err := json.Unmarshal([]byte(out), &lists); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString(optionsHead)
	for _, section := range sections {
		text.WriteString(section.text)
		for _, o := range lists[section.key] {
			if section.below != "" && strings.HasPrefix(o.Name, section.below) {
				continue
			}
			if o.Description == "" {
				t.Errorf("%s has no description", o.Name)
			}
			text.WriteString(entry(o))
		}
	}
	const file = "../../docs/options.md"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(committed), text.String()); diff != "" {
		t.Errorf("docs/options.md is not what the modules say; -update writes it anew: -committed +made\n%s", diff)
	}
}

// entry is an option as the reference has it.
func entry(o option) string {
	facts := "required"
	switch {
	case o.ReadOnly:
		facts = "read-only"
	case o.Default != nil:
		facts = "default `" + strings.ReplaceAll(*o.Default, "{}", "{ }") + "`"
	}
	kind := o.Type
	if kind == "submodule" {
		kind = "a set"
	}
	kind = strings.ReplaceAll(kind, "submodule", "sets")
	return fmt.Sprintf("\n**`%s`**: %s\n\n> %s; %s\n", o.Name, strings.TrimSpace(strings.ReplaceAll(o.Description, "\n", " ")), kind, facts)
}
