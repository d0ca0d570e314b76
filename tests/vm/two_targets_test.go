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
	// By machine: its sshd's ports, the system it starts with, the one it is to
	// get ("" for none), and what else is in its store.
	Ports    map[string][]int
	First    map[string]string
	Deployed map[string]string
	Paths    map[string][]string
}

const look = `test: {
  inherit (test) testScript;
  ports = builtins.mapAttrs (_: m: m.services.openssh.ports or [ ]) test.nodes;
  first = builtins.mapAttrs (_: m: m.system.build.toplevel) test.nodes;
  deployed = builtins.mapAttrs (_: m: m.system.build.deployed or "") test.nodes;
  paths = builtins.mapAttrs (_: m: m.virtualisation.additionalPaths or [ ]) test.nodes;
}`

// The parts of the test fit each other: the script's Python, the description of
// the world, the flake, the machines.
func TestTwoTargets(t *testing.T) {
	n := machineNix(t)
	store := n.store
	ref, override := n.source(t)
	out, err := n.eval(ref, override, "checks."+nixtest.Platform()+".vm-two-targets", look)
	if err != nil {
		t.Fatal(err)
	}
	var test evaluated
	if err := json.Unmarshal([]byte(out), &test); err != nil {
		t.Fatal(err)
	}

	t.Run("Python", func(t *testing.T) { compiles(t, store, test.TestScript) })

	// The script calls the scenarios by their names, with a whole description.
	call := regexp.MustCompile(`"scenario run ([A-Za-z ]+) --world (\S+)"`).FindStringSubmatch(test.TestScript)
	if call == nil {
		t.Fatalf("the script doesn't call scenario:\n%s", test.TestScript)
	}
	names, err := exec.CommandContext(t.Context(), "go", "run", "github.com/deploy-ssh/deploy-ssh/tests/scenario/cmd/scenario", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(call[1]) {
		if !slices.Contains(strings.Fields(string(names)), name) {
			t.Errorf("there is no scenario %s", name)
		}
	}
	world, err := sshworld.Read(call[2])
	if err != nil {
		t.Fatal(err)
	}
	if got := test.Ports[world.Targets[0].Node]; world.Baseline == nil || world.Baseline.Port != got[0] {
		t.Errorf("the baseline %+v runs the first target's system, whose sshd listens on %v", world.Baseline, got)
	}

	// The program reads the flake as it will on the deployer.
	dir := filepath.Join(store.Runner.Dir, "fleet")
	copied := regexp.MustCompile(`"cp (\S+) ` + regexp.QuoteMeta(world.Flake) + `/flake.nix"`).FindStringSubmatch(test.TestScript)
	if copied == nil {
		t.Fatalf("the script doesn't copy a flake to %s", world.Flake)
	}
	text, err := os.ReadFile(copied[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "flake.nix"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	nodes, err := flake.Evaluator{Runner: store.Runner}.Evaluate(t.Context(), flake.Request{Ref: "path:" + dir + "#nodes"})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Nodes) != len(world.Targets) {
		t.Fatalf("the flake has %d nodes, the world %d targets", len(nodes.Nodes), len(world.Targets))
	}
	for i, target := range world.Targets {
		node := nodes.Nodes[i]
		if node.Name != target.Node || node.Host != target.Host {
			t.Errorf("node %d is %s at %s, the target %s at %s", i, node.Name, node.Host, target.Node, target.Host)
		}
		if node.Toplevel == "" || node.Toplevel != test.Deployed[node.Name] || node.Toplevel == test.First[node.Name] {
			t.Errorf("%s is to get %s; the flake has %s, it starts with %s", node.Name, test.Deployed[node.Name], node.Toplevel, test.First[node.Name])
		}
		if !slices.Contains(test.Paths["deployer"], node.Toplevel) || slices.Contains(test.Paths[node.Name], node.Toplevel) {
			t.Errorf("%s: its new system must be in the deployer's store and not in its own", node.Name)
		}
		if !slices.Equal(test.Ports[node.Name], []int{target.Port}) || target.Port == 22 {
			t.Errorf("%s: its sshd listens on %v, the onlooker looks at %d", node.Name, test.Ports[node.Name], target.Port)
		}
	}
	if !slices.Contains(test.Paths["baseline"], nodes.Nodes[0].Toplevel) {
		t.Error("the baseline doesn't have the system to boot into")
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
