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

// The system of all nodes is no node, where it is one of the configurations.
func TestMkNodesCombined(t *testing.T) {
	store := nixtest.New(t)
	const configurations = `nixosConfigurations = { all = { options = { }; config.system.build.toplevel = system "all"; }; db = { options = { }; config.system.build.toplevel = abort "db"; }; };`
	for _, test := range []struct{ name, arguments, want, err string }{
		{"by its name", configurations + ` combined = "all";`, "db", ""},
		{"a derivation", `nodes.db.host = "x"; nixosConfigurations.db = { options = { }; config = abort "db"; }; combined = system "all";`, "db", ""},
		{"a configuration", configurations + ` nodes = [ { name = "db"; } ]; combined = { options = { }; config.system.build.toplevel = system "all"; };`, "db", ""},
		{"no such name", configurations + ` combined = "al";`, "", `combined: found "al"; wanted a system, or the name of a configuration (there are: all, db)`},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := eval(t, store, `contract { toplevels = "caught"; include = null; exclude = [ ]; combined = true; } (lib.mkNodes { `+test.arguments+` })`)
			if test.err != "" || err != nil {
				if err == nil || test.err == "" || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			if problems, err := schema.Check(schema.Contract, []byte(out)); err != nil || len(problems) > 0 {
				t.Errorf("the contract is broken: %v %v", problems, err)
			}
			var doc struct {
				Nodes    []struct{ Name, Toplevel string }
				Combined struct{ Toplevel string }
			}
			if err := json.Unmarshal([]byte(out), &doc); err != nil {
				t.Fatal(err)
			}
			if len(doc.Nodes) != 1 || doc.Nodes[0].Name != test.want || doc.Nodes[0].Toplevel != "" || !strings.HasSuffix(doc.Combined.Toplevel, "-all") {
				t.Errorf("%s", out)
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
		`[ ]`:                                "mkNodes: its argument: found a list; wanted an attribute set. Write mkNodes {",
		`{ }`:                                "found neither `nodes` nor `nixosConfigurations`",
		`{ nods = { }; }`:                    "found the unknown nods; wanted only nixosConfigurations, nodes, defaults, order",
		`{ nodes = 5; }`:                     "mkNodes: nodes: found a number; wanted an attribute set by node name, or a list of nodes",
		`{ nodes = [ { toplevel = 1; } ]; }`: "mkNodes: nodes[0]: found a node without `name`; wanted a node with a name. Write { name",
		`{ nodes = [ 5 ]; }`:                 "mkNodes: nodes[0]: found a number; wanted a node with a name",
		`{ nodes.web = system "x"; }`:        "mkNodes: nodes.web: found a package; wanted the settings of a node",
		`{ nodes.web = { }; }`:               "mkNodes: nodes.web: found no `toplevel` and no configuration of this name (there are: none)",
		`{ nodes.web = { toplevel = 1; ssh.options = [ "Port=1" "-p 22" ]; }; }`:               "mkNodes: nodes.web.ssh.options[1]: found \"-p 22\"; wanted a bare Key=Value option of ssh_config, such as Port=2222: ",
		`{ nodes = [ { name = "w.1"; toplevel = 1; ssh.options = [ "logLevel=QUIET" ]; } ]; }`: "mkNodes: nodes.\"w.1\".ssh.options[0]: found \"logLevel=QUIET\"; wanted an option that the program doesn't set itself. Remove it: the program reads from ssh",
		`{ nodes.web.toplevel = 1; defaults.ssh.options = [ 5 ]; }`:                            "mkNodes: defaults.ssh.options[0]: found a number; wanted a bare Key=Value",
		`{ nodes.web = { toplevel = 1; ssh.options = [ "A BEGIN PRIVATE KEY hunter2" ]; }; }`:  "mkNodes: nodes.web.ssh.options[0]: found a private key; wanted a bare",
		`{ nixosConfigurations = system "x"; }`:                                                "mkNodes: nixosConfigurations: found a package; wanted an attribute set of NixOS configurations",
	} {
		_, err := eval(t, store, `map (lib.mkNodes `+argument+`)`)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "found \"A BEGIN") {
			t.Errorf("%s: got %v\nwant %s", argument, err, want)
		}
	}
}

// The program's own evaluation meets a wrong option as an error of the map,
// and nobody's systems are looked at for it.
func TestMkNodesSettingsForceNoSystem(t *testing.T) {
	store := nixtest.New(t)
	const nodes = `(lib.mkNodes {
	  nixosConfigurations = { web = { options = abort "web"; config = abort "web"; }; db = throw "db"; x = system "x"; };
	  nodes.web = { ssh.options = [ "Port=2222" ]; tags = [ "t" ]; };
	  nodes.x.toplevel = system "x"; })`
	for _, request := range []string{
		`{ toplevels = "none"; include = null; exclude = [ ]; }`,
		`{ toplevels = "caught"; include = [ "x" ]; exclude = [ ]; }`,
		`{ toplevels = "strict"; include = null; exclude = [ { text = "[wd]*"; all = [ { text = "[wd]*"; name = "[wd].*"; } ]; } ]; }`,
	} {
		out, err := eval(t, store, "contract "+request+" "+nodes)
		if err != nil {
			t.Errorf("%s: %v", request, err)
			continue
		}
		if !strings.Contains(out, `"options":["Port=2222"]`) || strings.Contains(request, "none") == strings.Contains(out, `"toplevel"`) {
			t.Errorf("%s: got %s", request, out)
		}
	}
}

// Option types read their patterns from the schema: Nix must read them as Go does.
func TestPatternsInNix(t *testing.T) {
	store := nixtest.New(t)
	for rule, texts := range map[string][]string{
		"name":      {"web", "a.b-c_1", "-a", "", "a b", "é", strings.Repeat("a", 63), strings.Repeat("a", 64)},
		"host":      {"", "web", "[::1]", "fe80::1%eth0", "a b", "-a", "a*", "a,b", "root@a", "a\n", "a`b", "a~b", "{a}"},
		"user":      {"", "root", "DOM\\u", "-x", "a b", "a@b", "svc$", "a\t"},
		"key":       {"", "~/.ssh/id", "/a b/c", "a\"b", "a\nb", "a\u007f", "/ü"},
		"hostKey":   {"", "# c", "ssh-ed25519 AAAAC3", "ssh-ed25519\tAAAAC3= c é\r\n\n ssh-rsa AAAA+/8==\n", "web ssh-ed25519 AAAAC3", "ssh-ed25519", "ssh-ed25519 AAAAC3-", "ssh-dss AAAA", "ssh-ed25519 AAAAC3\nx", "sk-ssh-ed25519@openssh.com AAAA", "sk-ssh-ed25519@opensshxcom AAAA", "ecdsa-sha2-nistp384 AAAA", "ssh-ed25519 AAAAnr", "ssh-ed25519 AAAA\r"},
		"unit":      {"nginx.service", "a-*", "*", "nginx", "a b.service", "a/b.mount", "[a].service", "a\\x2d.swap", "user@?.service", "a.serviceX", ""},
		"elevate":   {"", "sudo", "doas", "su", "sudo\n", "Sudo"},
		"machineId": {"", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdeg", "0123456789abcdef", "0123456789ABCDEF0123456789ABCDEF"},
		"hostName":  {"", "web", "web.example.org", "-a", "a b", "a_b", strings.Repeat("a", 64), strings.Repeat("a", 65)},
		"option":    {"Port=2222", "A=b=c", "-p", "Port", "Port=", "Port= 1", "A=b\nc", "A=b\rc", "A=nr", "A=ü", "A=\u007f", "A=b\\c"},
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
