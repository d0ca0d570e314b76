package nix_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/internal/schema"
	"github.com/google/go-cmp/cmp"
)

// nixpkgsLib is what has the module system: nixpkgs' lib in NIXPKGS_LIB, else the
// stand-in for it, which is held against the real one wherever that is at hand.
func nixpkgsLib(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("NIXPKGS_LIB")
	if dir == "" {
		standIn, err := filepath.Abs("../tests/vm/stand-in/lib.nix")
		if err != nil {
			t.Fatal(err)
		}
		return standIn
	}
	if _, err := os.Stat(filepath.Join(dir, "modules.nix")); err != nil {
		t.Fatalf("NIXPKGS_LIB: %v", err)
	}
	return dir
}

// Every text type says what it wants in the schema's words and carries its pattern.
func TestTextTypesAreTheSchema(t *testing.T) {
	store := nixtest.New(t)
	out, err := eval(t, store, `builtins.mapAttrs (_: type: { inherit (type) description pattern; })
	  { inherit (lib.types { lib = standIn; }) elevate host hostKey hostName key machineId name option unit user; }`)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]struct{ Description, Pattern string }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 10 {
		t.Errorf("got %d types", len(got))
	}
	for rule, is := range got {
		if !strings.HasPrefix(is.Description, schema.Description(rule)) || is.Description == "" || is.Pattern != schema.Pattern(rule) {
			t.Errorf("%s: got %+v", rule, is)
		}
	}
}

// modules is an expression that evaluates the definition of a node map.
func modules(lib, definition string) string {
	return fmt.Sprintf(`let
	  nixpkgs = import %s;
	  types = lib.types { lib = nixpkgs; };
	  nodes = (nixpkgs.evalModules { modules = [
	    { options.nodes = nixpkgs.mkOption { type = types.nodeMap; }; options.environment = nixpkgs.mkOption { type = types.environmentMap; default = { }; }; }
	    %s
	  ]; }).config.nodes; in `, lib, definition)
}

func TestTypesMakeNodeMaps(t *testing.T) {
	dir := nixpkgsLib(t)
	store := nixtest.New(t)
	for _, test := range []struct{ name, definition, want string }{
		{"a set", `{ nodes.nodes.web = { toplevel = system "w"; host = "10.0.0.1"; ssh.options = [ "Port=2222" ]; }; nodes.nodes.db.toplevel = system "d"; }`, "db web@10.0.0.1 by name"},
		{"a list", `{ nodes.nodes = [ { name = "web"; toplevel = system "w"; } { name = "db"; toplevel = system "d"; tags = [ "eu" ]; } ]; }`, "web db"},
		{"an order", `{ nodes.nodes = { web.toplevel = system "w"; db.toplevel = system "d"; }; nodes.order = [ "web" "db" ]; }`, "web db"},
		{"several modules", `{ nodes.nodes.web.toplevel = system "w"; } { nodes.nodes.web.host = "h"; nodes.defaults = { elevate = "sudo"; ssh.user = "u"; }; }`, "web@h by name"},
		{"everything", `{ nodes.nodes.web = { toplevel = "${system "w"}"; elevate = "doas"; ignoreUnits = [ "a-*" ];
		  expect = { machineId = "0123456789abcdef0123456789abcdef"; hostName = "web"; };
		  ssh = { host = "::1"; user = "u"; key = "~/.ssh/id"; hostKey = "# it\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAeSTrPt2ByS4ek2PVJ8VMD7Ng7VvHEDK1nqbzB7vWkZ root@web\n"; }; }; }`, "web by name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := eval(t, store, modules(dir, test.definition)+"map nodes")
			if err != nil {
				t.Fatal(err)
			}
			if problems, err := schema.Check(schema.Contract, []byte(out)); err != nil || len(problems) > 0 {
				t.Errorf("the contract is broken: %v %v", problems, err)
			}
			if got := names(t, out); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// names lists the nodes of a contract, with their hosts, and its problems.
func names(t *testing.T, contract string) string {
	t.Helper()
	var doc struct {
		Ordered  bool
		Nodes    []struct{ Name, Host, Toplevel string }
		Problems []any
	}
	if err := json.Unmarshal([]byte(contract), &doc); err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, n := range doc.Nodes {
		if n.Toplevel == "" {
			n.Name += ":no-toplevel"
		}
		if n.Host != "" {
			n.Name += "@" + n.Host
		}
		words = append(words, n.Name)
	}
	if !doc.Ordered {
		words = append(words, "by name")
	}
	for _, p := range doc.Problems {
		words = append(words, fmt.Sprint(p))
	}
	return strings.Join(words, " ")
}

func TestTypesRefuse(t *testing.T) {
	dir := nixpkgsLib(t)
	store := nixtest.New(t)
	for definition, wants := range map[string][]string{
		`{ nodes.nodes.web = { toplevel = 1; ssh.options = [ "-p 22" ]; }; }`:              {"nodes.nodes.web.ssh.options", "is not of type", "a bare Key=Value option of ssh_config, such as Port=2222", `"-p 22"`},
		`{ nodes.nodes.web = { toplevel = 1; ssh.options = [ "LogLevel=QUIET" ]; }; }`:     {"is not of type", "a bare Key=Value option", "none of the keywords batchmode, ", "LogLevel=QUIET"},
		`{ nodes.nodes.web = { toplevel = 1; ssh.optoins = [ ]; }; }`:                      {"nodes.nodes.web.ssh.optoins' does not exist"},
		`{ nodes.defaults.ssh.hostKey = "x"; nodes.nodes.web.toplevel = 1; }`:              {"nodes.defaults.ssh.hostKey' does not exist"},
		`{ nodes.nodes.web = { toplevel = 1; ssh.hostKey = "web ssh-ed25519 AAAAC3"; }; }`: {"public key lines of the host"},
		`{ nodes.nodes.web = { toplevel = 1; ssh.key = /etc/key; }; }`:                     {"the path of a private key file"},
		`{ nodes.nodes = [ { toplevel = 1; } ]; }`:                                         {".name' is used but not defined"},
	} {
		_, err := eval(t, store, modules(dir, definition)+"map nodes")
		for _, want := range wants {
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "was accessed but has no value defined", "is used but not defined"), want) {
				t.Errorf("%s: got %v\nwant %s", definition, err, want)
			}
		}
	}
}

// Neither the settings nor the systems of nodes that were left out force a toplevel.
func TestTypesForceNoSystem(t *testing.T) {
	dir := nixpkgsLib(t)
	store := nixtest.New(t)
	const definition = `{ nodes.nodes.web = { toplevel = system "w"; tags = [ "t" ]; }; nodes.nodes.db = { toplevel = abort "db"; ssh.user = "u"; }; }`
	for _, request := range []string{
		`{ toplevels = "caught"; include = [ "web" ]; exclude = [ ]; }`,
		`{ toplevels = "caught"; include = [ { text = "@t"; all = [ { text = "@t"; tag = "t"; } ]; } ]; exclude = [ ]; }`,
		`{ toplevels = "none"; include = null; exclude = [ ]; }`,
	} {
		out, err := eval(t, store, modules(dir, definition)+"contract "+request+" nodes")
		if err != nil {
			t.Errorf("%s: %v", request, err)
			continue
		}
		if got := names(t, out); !strings.Contains(got, "db") {
			t.Errorf("got %q", got)
		}
	}
}

// What a module makes for the environment is what the program reads.
func TestEnvironmentMapType(t *testing.T) {
	dir := nixpkgsLib(t)
	store := nixtest.New(t)
	out, err := eval(t, store, fmt.Sprintf(`let nixpkgs = import %s; types = lib.types { lib = nixpkgs; }; in
	  (nixpkgs.evalModules { modules = [ { options.e = nixpkgs.mkOption { type = types.environmentMap; }; }
	    { e.defaults.options = [ "Port=1" ]; e.nodes.web.host = "h"; } ]; }).config.e`, dir))
	if err != nil {
		t.Fatal(err)
	}
	problems, err := schema.Check(schema.Environment, []byte(out))
	if err != nil || len(problems) > 0 {
		t.Errorf("%s: %v %v", out, problems, err)
	}
	const want = `{"defaults":{"elevate":null,"key":null,"options":["Port=1"],"user":null},"nodes":{"web":{"elevate":null,"host":"h","hostKey":null,"key":null,"options":[],"user":null}}}`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
