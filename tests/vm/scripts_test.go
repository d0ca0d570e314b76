package vm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/sshworld"
)

// evaluated is what a VM test says, seen through the stand-in.
type evaluated struct {
	TestScript string
	// By machine: its sshd's ports, the system it starts with, those it may get by
	// name, and what else is in its store.
	Ports    map[string][]int
	First    map[string]string
	Deployed map[string]map[string]string
	Paths    map[string][]string
}

const look = `builtins.mapAttrs (_: test: if !(test ? testScript) then null else {
  inherit (test) testScript;
  ports = builtins.mapAttrs (_: m: m.services.openssh.ports or [ ]) test.nodes;
  first = builtins.mapAttrs (_: m: m.system.build.toplevel) test.nodes;
  deployed = builtins.mapAttrs (_: m: m.system.build.deployed or { }) test.nodes;
  paths = builtins.mapAttrs (_: m: m.virtualisation.additionalPaths or [ ]) test.nodes;
})`

// The parts of each VM test fit each other: the script's Python, the scenarios, the
// description of the world, the flake, the machines.
func TestScripts(t *testing.T) { everyNix(t, testScripts) }

func testScripts(t *testing.T, n nixOf) {
	ref, override := n.source(t)
	out, err := n.eval(ref, override, "checks."+nixtest.Platform(), look)
	if err != nil {
		t.Fatal(err)
	}
	var tests map[string]*evaluated
	if err := json.Unmarshal([]byte(out), &tests); err != nil {
		t.Fatal(err)
	}
	names, err := exec.CommandContext(t.Context(), "go", "run", "github.com/deploy-ssh/deploy-ssh/tests/scenario/cmd/scenario", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	played := map[string]bool{}
	for check, test := range tests {
		if test == nil {
			continue
		}
		t.Run(check, func(t *testing.T) {
			t.Run("Python", func(t *testing.T) { compiles(t, n.store, test.TestScript) })
			call := regexp.MustCompile(`"scenario run ([A-Za-z ]+) --world (\S+)"`).FindStringSubmatch(test.TestScript)
			if call == nil {
				t.Fatalf("the script doesn't call scenario:\n%s", test.TestScript)
			}
			for _, name := range strings.Fields(call[1]) {
				if !slices.Contains(strings.Fields(string(names)), name) {
					t.Errorf("there is no scenario %s", name)
				}
				played[name] = true
			}
			world, err := sshworld.Read(call[2])
			if err != nil {
				t.Fatal(err)
			}
			test.fits(t, world, readMaps(t, test.TestScript, world.Flake))
			evaluates(t, n.store, test.TestScript, world)
		})
	}
	for _, name := range strings.Fields(string(names)) {
		if !played[name] {
			t.Errorf("no VM test plays the scenario %s", name)
		}
	}
}

// node is a node as maps.json has it.
type node struct {
	Name, Host, Toplevel string
	SSH                  struct{ Options []string }
}

// copied is the file that the script copies into the flake's directory.
func copied(t *testing.T, script, directory, name string) []byte {
	t.Helper()
	found := regexp.MustCompile(`"cp (\S+) ` + regexp.QuoteMeta(directory+"/"+name) + `"`).FindStringSubmatch(script)
	if found == nil {
		t.Fatalf("the script doesn't copy %s to %s", name, directory)
	}
	text, err := os.ReadFile(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func readMaps(t *testing.T, script, directory string) map[string][]node {
	t.Helper()
	var maps map[string][]node
	if err := json.Unmarshal(copied(t, script, directory, "maps.json"), &maps); err != nil {
		t.Fatal(err)
	}
	return maps
}

// fits checks the maps and the world against the machines.
func (test evaluated) fits(t *testing.T, world sshworld.World, maps map[string][]node) {
	t.Helper()
	if b := world.Baseline; b != nil && !slices.Contains(test.Paths[b.Node], maps["nodes"][0].Toplevel) {
		t.Error("the baseline doesn't have the system to boot into")
	} else if b != nil && b.Port != world.Targets[0].Port {
		t.Errorf("the baseline runs the first target's system, whose sshd listens on %d, not %d", world.Targets[0].Port, b.Port)
	}
	for _, target := range world.Targets {
		if !slices.Equal(test.Ports[target.Node], []int{target.Port}) || target.Port == 22 {
			t.Errorf("%s: its sshd listens on %v, the onlooker looks at %d", target.Node, test.Ports[target.Node], target.Port)
		}
	}
	for attribute, nodes := range maps {
		for _, node := range nodes {
			owner := node.Name
			if test.Deployed[owner] == nil {
				owner = world.Targets[0].Node // a node that only the map knows
			}
			if !slices.Contains(systems(test.Deployed[owner]), node.Toplevel) || node.Toplevel == test.First[owner] {
				t.Errorf("%s: %s is to get %s, which is none of its next systems", attribute, node.Name, node.Toplevel)
			}
			if !slices.Contains(test.Paths["deployer"], node.Toplevel) || slices.Contains(test.Paths[owner], node.Toplevel) {
				t.Errorf("%s: %s: its new system must be in the deployer's store and not in its own", attribute, node.Name)
			}
		}
	}
}

// systems are the toplevels among a machine's next systems, which differ.
func systems(byName map[string]string) []string {
	var all []string
	for _, toplevel := range byName {
		if !slices.Contains(all, toplevel) {
			all = append(all, toplevel)
		}
	}
	return all
}

// evaluates reads each map of the flake as the program will on the deployer.
func evaluates(t *testing.T, store nixtest.Store, script string, world sshworld.World) {
	t.Helper()
	dir := filepath.Join(store.Runner.Dir, "fleet-"+filepath.Base(t.Name()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"flake.nix", "maps.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), copied(t, script, world.Flake, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for attribute, want := range readMaps(t, script, world.Flake) {
		nodes, err := flake.Evaluator{Runner: store.Runner}.Evaluate(t.Context(), flake.Request{Ref: "path:" + dir + "#" + attribute})
		if err != nil {
			t.Errorf("%s: %v", attribute, err)
			continue
		}
		for i, node := range nodes.Nodes {
			if node.Name != want[i].Name || node.Toplevel != want[i].Toplevel {
				t.Errorf("%s: node %d is %s with %s, want %s with %s", attribute, i, node.Name, node.Toplevel, want[i].Name, want[i].Toplevel)
			}
		}
	}
}

// compiles checks that a test script is Python.
func compiles(t *testing.T, store nixtest.Store, script string) {
	t.Helper()
	tooltest.Need(t, "python3")
	_, err := store.Runner.Run(t.Context(), child.Command{
		Name:  "python3",
		Args:  []string{"-c", "import sys; compile(sys.stdin.read(), 'testScript', 'exec')"},
		Stdin: strings.NewReader(script),
	})
	if err != nil {
		t.Errorf("%v\n%s", err, script)
	}
}
