package nix_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/internal/schema"
	"github.com/google/go-cmp/cmp"
)

// eval evaluates an expression in which `lib` is lib.nix and `contract` is
// contract.nix, both read from this directory.
func eval(t *testing.T, store nixtest.Store, expression string) (string, error) {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`let lib = import %s/lib.nix; contract = import %s/contract.nix; schema = builtins.fromJSON (builtins.readFile %s/schema.json);
		system = name: derivation { inherit name; system = %q; builder = "/bin/sh"; };
		standIn = import %s/testdata/lib.nix;
		map = contract { toplevels = "caught"; include = null; exclude = [ ]; };
		in %s`, dir, dir, dir, nixtest.Platform(), dir, expression)
	result, err := store.Runner.Run(context.Background(), child.Command{
		Name: "nix-instantiate", Args: []string{"--eval", "--strict", "--json", "--expr", text}, Subject: "nix-instantiate",
	})
	return strings.TrimSpace(string(result.Stdout)), err
}

// --apply reads no files, so the text must stand alone.
func TestContractStandsAlone(t *testing.T) {
	text, err := os.ReadFile("contract.nix")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"import ", "<nixpkgs", "readFile", "fetch", "currentSystem", "getEnv"} {
		if strings.Contains(strings.ReplaceAll(string(text), "no import", ""), word) {
			t.Errorf("contract.nix contains %q", word)
		}
	}
	// Linux takes 128 KiB for one argument; the selection needs room, too.
	if len(text) > 64<<10 {
		t.Errorf("contract.nix has %d bytes", len(text))
	}
}

func TestMkNodesMakesNodeMaps(t *testing.T) {
	store := nixtest.New(t)
	const configurations = `nixosConfigurations = { web = { options = { }; config.system.build.toplevel = system "w"; }; db = { options = { }; config.system.build.toplevel = system "d"; }; };`
	for _, test := range []struct {
		name, arguments string
		ordered         bool
		nodes           string
	}{
		{"configurations alone", configurations, false, "db web"},
		{"settings by name", configurations + ` nodes.web = { host = "10.0.0.1"; ssh.user = "u"; };`, false, "db web@10.0.0.1"},
		{"with an order", configurations + ` order = [ "web" "db" ];`, true, "web db"},
		{"a list picks", configurations + ` nodes = [ { name = "web"; } ];`, true, "web"},
		{"a list alone", `nodes = [ { name = "b"; toplevel = system "b"; } { name = "a"; toplevel = system "a"; } ]; defaults.ssh.user = "x";`, true, "b a"},
		{"more than the configurations", configurations + ` nodes.cache.toplevel = system "c";`, false, "cache db web"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := eval(t, store, `map (lib.mkNodes { `+test.arguments+` })`)
			if err != nil {
				t.Fatal(err)
			}
			if problems, err := schema.Check(schema.Contract, []byte(out)); err != nil || len(problems) > 0 {
				t.Errorf("the contract is broken: %v %v", problems, err)
			}
			var doc struct {
				Ordered  bool
				Nodes    []struct{ Name, Host, Toplevel string }
				Problems []any
			}
			if err := json.Unmarshal([]byte(out), &doc); err != nil {
				t.Fatal(err)
			}
			var nodes []string
			for _, n := range doc.Nodes {
				if n.Toplevel == "" {
					t.Errorf("%s has no toplevel", n.Name)
				}
				if n.Host != "" {
					n.Name += "@" + n.Host
				}
				nodes = append(nodes, n.Name)
			}
			if got := strings.Join(nodes, " "); got != test.nodes || doc.Ordered != test.ordered || len(doc.Problems) > 0 {
				t.Errorf("got %q, ordered %v, problems %v", got, doc.Ordered, doc.Problems)
			}
		})
	}
}

func TestMkNodesForcesNoSystem(t *testing.T) {
	store := nixtest.New(t)
	out, err := eval(t, store, `builtins.attrNames (lib.mkNodes {
	  nixosConfigurations = { web = abort "web"; db = abort "db"; };
	  nodes.db.ssh.user = abort "user";
	  defaults = abort "defaults"; }).nodes`)
	if err != nil || out != `["db","web"]` {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestMkNodesErrors(t *testing.T) {
	store := nixtest.New(t)
	for argument, want := range map[string]string{
		`[ ]`:                                   "mkNodes: its argument: found a list; wanted an attribute set. Write mkNodes {",
		`{ }`:                                   "found neither `nodes` nor `nixosConfigurations`",
		`{ nods = { }; }`:                       "found the attribute nods; wanted only nixosConfigurations, nodes, defaults, order",
		`{ nodes = 5; }`:                        "mkNodes: nodes: found a number; wanted an attribute set by node name, or a list of nodes",
		`{ nodes = [ { toplevel = 1; } ]; }`:    "mkNodes: nodes: found a list entry without `name`",
		`{ nodes.web = system "x"; }`:           "mkNodes: nodes.web: found a package; wanted the settings of a node",
		`{ nodes.web = { }; }`:                  "mkNodes: nodes.web: found no `toplevel` and no configuration of this name (there are: none)",
		`{ nixosConfigurations = system "x"; }`: "mkNodes: nixosConfigurations: found a package; wanted an attribute set of NixOS configurations",
	} {
		_, err := eval(t, store, `map (lib.mkNodes `+argument+`)`)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v\nwant %s", argument, err, want)
		}
	}
}

// Option types read their patterns from the schema: Nix must read them as Go does.
func TestPatternsInNix(t *testing.T) {
	store := nixtest.New(t)
	for rule, texts := range map[string][]string{
		"name":   {"web", "a.b-c_1", "-a", "", "a b", "é", strings.Repeat("a", 63), strings.Repeat("a", 64)},
		"host":   {"", "web", "[::1]", "fe80::1%eth0", "a b", "-a", "a*", "a,b", "root@a", "a\n", "a`b", "a~b", "{a}"},
		"user":   {"", "root", "DOM\\u", "-x", "a b", "a@b", "svc$", "a\t"},
		"key":    {"", "~/.ssh/id", "/a b/c", "a\"b", "a\nb", "a\u007f", "/ü"},
		"option": {"Port=2222", "A=b=c", "-p", "Port", "Port=", "Port= 1", "A=b\nc", "A=b\rc", "A=nr", "A=ü", "A=\u007f", "A=b\\c"},
	} {
		list, err := json.Marshal(texts)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "texts.json")
		if err := os.WriteFile(file, list, 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := eval(t, store, fmt.Sprintf(`builtins.map (text: builtins.match schema."$defs".%s.pattern text != null) (builtins.fromJSON (builtins.readFile %s))`, rule, file))
		if err != nil {
			t.Fatal(err)
		}
		var got, want []bool
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			want = append(want, schema.Matches(rule, text))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %q: -Go +Nix\n%s", rule, texts, diff)
		}
	}
}
