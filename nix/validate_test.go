package nix_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/internal/schema"
)

// The check of a flake refuses what the program refuses, and nothing else: each
// document is judged by the schema in Nix and by a validator in Go.
func TestValidateIsTheSchema(t *testing.T) {
	store := nixtest.New(t)
	maps := map[string]bool{ // by whether they are admitted
		`{ web = { toplevel = 1; }; }`: true,
		`{ nodes.web = { toplevel = 1; host = null; tags = [ ]; ssh = { key = ""; options = null; }; }; defaults = null; }`: true,
		`{ nodes = [ { name = "web"; toplevel = 1; ssh.options = [ "Port=22" ]; } ]; }`:                                     true,
		`{ nodes.web = { toplevel = 1; elevate = "doas"; ignoreUnits = [ "a-*" ]; expect.hostName = "web"; }; }`:            true,
		`{ nodes.web.toplevel = 1; order = [ "web" ]; defaults = { elevate = "sudo"; ssh.user = "u"; }; }`:                  true,
		`{ nodes.web = { toplevel = 1; hots = "x"; }; }`:                                                                    false,
		`{ nodes.web = { toplevel = 1; ssh.optoins = [ ]; }; }`:                                                             false,
		`{ nodes.web = { toplevel = 1; ssh = "x"; }; }`:                                                                     false,
		`{ nodes.web = { toplevel = 1; ssh.options = [ "-p 22" ]; }; }`:                                                     false,
		`{ nodes.web = { toplevel = 1; ssh.options = [ "LogLevel=QUIET" ]; }; }`:                                            false,
		`{ nodes.web = { toplevel = 1; ssh.options = [ 1 ]; }; }`:                                                           false,
		`{ nodes.web = { toplevel = 1; ssh.options = "Port=22"; }; }`:                                                       false,
		`{ nodes.web = { toplevel = 1; ssh.hostKey = "web ssh-ed25519 AAAA"; }; }`:                                          false,
		`{ nodes.web = { toplevel = 1; ssh.key = ./key; }; }`:                                                               false,
		`{ nodes.web = { toplevel = 1; elevate = "su"; }; }`:                                                                false,
		`{ nodes.web = { toplevel = 1; expect.machineId = "1"; }; }`:                                                        false,
		`{ nodes.web = { toplevel = 1; expect.machine = "1"; }; }`:                                                          false,
		`{ nodes.web = { toplevel = 1; ignoreUnits = [ "nginx" ]; }; }`:                                                     false,
		`{ nodes.web = { toplevel = 1; tags = [ "a b" ]; }; }`:                                                              false,
		`{ nodes."web 1" = { toplevel = 1; }; }`:                                                                            false,
		`{ nodes.web.toplevel = 1; defaults.ssh.hostKey = "x"; }`:                                                           false,
		`{ nodes.web.toplevel = 1; defaults.user = "x"; }`:                                                                  false,
		`{ nodes.web.toplevel = 1; defalts = { }; }`:                                                                        false,
		`{ nodes.web.host = "x"; }`:                                                                                         false,
		`[ { name = "a"; toplevel = 1; } { name = "a"; toplevel = 1; } ]`:                                                   false,
		`{ nodes = { }; }`: false,
	}
	for _, row := range readOptions(t).Items {
		if strings.Contains(row.Item, "\x00") {
			continue
		}
		text, err := json.Marshal(row.Item)
		if err != nil {
			t.Fatal(err)
		}
		maps[fmt.Sprintf(`{ nodes.web = { toplevel = 1; ssh.options = [ (builtins.fromJSON %s) ]; }; }`, nixString(string(text)))] = row.Admitted
	}
	var expressions []string
	var all strings.Builder
	for expression := range maps {
		expressions = append(expressions, expression)
		fmt.Fprintf(&all, "(let made = contract { toplevels = \"none\"; include = null; exclude = [ ]; } %s; in { contract = made; problems = validate.contract made; checked = (builtins.tryEval (lib.checks %[1]s)).success; })\n", expression)
	}
	file := filepath.Join(t.TempDir(), "maps.nix")
	text := fmt.Sprintf("{ lib, contract }: let validate = import %s/validate.nix; in [ %s ]", dirOf(t), all.String())
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := eval(t, store, fmt.Sprintf("import %s { inherit lib contract; }", file))
	if err != nil {
		t.Fatal(err)
	}
	var judged []struct {
		Contract json.RawMessage
		Problems []struct{ Path, Text string }
		Checked  bool
	}
	if err := json.Unmarshal([]byte(out), &judged); err != nil {
		t.Fatal(err)
	}
	for i, expression := range expressions {
		var made struct{ Problems []any }
		if err := json.Unmarshal(judged[i].Contract, &made); err != nil {
			t.Fatal(err)
		}
		problems, err := schema.Check(schema.Contract, judged[i].Contract)
		if err != nil {
			t.Fatal(err)
		}
		inGo := len(problems)+len(made.Problems) == 0
		inNix := len(judged[i].Problems) == 0
		if inGo != maps[expression] || inNix != inGo || judged[i].Checked != inGo {
			t.Errorf("%.200s: admitted by Go: %v (%v), by Nix: %v (%v), by lib.checks: %v; want %v",
				expression, inGo, problems, inNix, judged[i].Problems, judged[i].Checked, maps[expression])
		}
	}
}

// nixString is a text as a string of Nix.
func nixString(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "${", `\${`, "\r", `\r`).Replace(text) + `"`
}

// What is wrong is said with its place and what is wanted, all at once.
func TestChecksSayWhatIsWrong(t *testing.T) {
	store := nixtest.New(t)
	_, err := eval(t, store, `lib.checks { nodes.web = { toplevel = abort "forced"; hots = abort "forced"; ssh.options = [ "-p 22" ]; }; }`)
	for _, want := range []string{
		"deploy-ssh.lib.checks: the node map is refused:",
		"nodes.web.hots: unknown field; known are elevate, expect, host, ignoreUnits, name, ssh, tags, toplevel",
		`nodes.web.ssh.options[0]: found "-p 22"; wanted a bare Key=Value option`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	// A good map is checked for each system, and its systems are not evaluated.
	out, err := eval(t, store, `builtins.mapAttrs (_: check: check.deploy-ssh-nodes.name) (lib.checks { nodes.web.toplevel = abort "forced"; })`)
	if want := `{"aarch64-darwin":"deploy-ssh-nodes","aarch64-linux":"deploy-ssh-nodes","x86_64-darwin":"deploy-ssh-nodes","x86_64-linux":"deploy-ssh-nodes"}`; err != nil || out != want {
		t.Errorf("got %s, %v", out, err)
	}
	// The check can be built, with nothing but a shell.
	built, err := store.Runner.Run(t.Context(), child.Command{Name: "nix-build", Args: []string{"--no-out-link", "--expr", fmt.Sprintf(
		`(import %s/lib.nix).checks { nodes.web.toplevel = 1; }`, dirOf(t)), "-A", nixtest.Platform() + ".deploy-ssh-nodes"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(strings.TrimSpace(string(built.Stdout)))
	if err != nil || string(text) != "nodes: 1\n" {
		t.Errorf("built: %q, %v", text, err)
	}
}

// dirOf is this directory, as Nix wants it.
func dirOf(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
