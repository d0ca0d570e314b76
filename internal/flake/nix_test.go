package flake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/google/go-cmp/cmp"
)

const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAeSTrPt2ByS4ek2PVJ8VMD7Ng7VvHEDK1nqbzB7vWkZ"

func evaluate(t *testing.T, store nixtest.Store, outputs, attribute string, change func(*Request)) (Map, error) {
	t.Helper()
	r := Request{Ref: store.Flake(t, outputs) + "#" + attribute}
	if change != nil {
		change(&r)
	}
	return Evaluator{Runner: store.Runner}.Evaluate(context.Background(), r)
}

func selecting(t *testing.T, on, exclude string) func(*Request) {
	t.Helper()
	return func(r *Request) {
		var err error
		if on != "" {
			if r.Include, err = ParseSelectors(on); err != nil {
				t.Fatal(err)
			}
		}
		if exclude != "" {
			if r.Exclude, err = ParseSelectors(exclude); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// brief is a map as text: names in order, each with what became of its toplevel.
func brief(m Map) string {
	var words []string
	for _, n := range m.Nodes {
		word := n.Name
		switch {
		case !n.Selected:
			word += ":left-out"
		case n.EvalError != "":
			word += ":failed"
		case n.Toplevel == "":
			word += ":nothing"
		case n.DrvPath == "":
			word += ":path"
		}
		words = append(words, word)
	}
	if !m.Ordered {
		words = append(words, "by name")
	}
	return strings.Join(words, " ")
}

// One system of all nodes goes to the first of them, and no other is looked at.
func TestEvaluateCombined(t *testing.T) {
	store := nixtest.New(t)
	const nodes = `nodes = [ { name = "web"; toplevel = abort "web"; } { name = "db"; host = "db.example"; } ]; `
	for _, test := range []struct {
		name, value  string
		settingsOnly bool
		want, fails  string
	}{
		{name: "a derivation", value: nodes + `combined = system "all" {};`, want: "web db:left-out"},
		{name: "a configuration", value: nodes + `combined = { options = {}; config.system.build.toplevel = system "all" {}; };`, want: "web db:left-out"},
		{name: "by name", value: `nodes = { web.toplevel = abort ""; db = {}; }; combined = system "all" {};`, want: "db web:left-out by name"},
		{name: "settings only", value: nodes + `combined = abort "all";`, settingsOnly: true, want: "web:nothing db:left-out"},
		{name: "throw", value: nodes + `combined = throw "no system";`, want: "web:failed db:left-out", fails: "no system"},
		{name: "abort", value: nodes + `combined = abort "no system";`, want: "web:failed db:left-out", fails: "no system"},
		{name: "none", value: `nodes = [ { name = "web"; toplevel = abort "web"; } ];`, fails: "has no `combined`"},
		{name: "null", value: nodes + `combined = null;`, fails: "has no `combined`"},
		{name: "no system", value: nodes + `combined = 1;`, fails: "combined: found a number; wanted a system"},
		{name: "no map for it", value: `web.toplevel = system "w" {};`, fails: "has no `combined`"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := evaluate(t, store, `{ nodes = { `+test.value+` }; }`, "nodes", func(r *Request) { r.Combined, r.SettingsOnly = true, test.settingsOnly })
			said := fmt.Sprint(err)
			if err == nil {
				said = m.Nodes[0].EvalError
				if got := brief(m); got != test.want || !m.Combined {
					t.Errorf("got %q, want %q", got, test.want)
				}
			}
			if (err == nil) != (test.want != "") || !strings.Contains(said, test.fails) {
				t.Errorf("error %v, want %q", said, test.fails)
			}
			if test.fails == "" && !test.settingsOnly && !strings.HasSuffix(m.Nodes[0].Toplevel, "-all") {
				t.Errorf("the toplevel is %q", m.Nodes[0].Toplevel)
			}
		})
	}
	// Nobody looks at it who was not asked to.
	m, err := evaluate(t, store, `{ nodes = { nodes = { web.toplevel = system "w" {}; }; combined = abort "all"; }; }`, "nodes", nil)
	if err != nil || brief(m) != "web by name" {
		t.Errorf("not asked for: %q, %v", brief(m), err)
	}
	if _, err := evaluate(t, store, `{ nodes = { nodes = { web = {}; }; combined = system "all" {}; }; }`, "nodes", nil); err == nil || !strings.Contains(err.Error(), "the node has no `toplevel`") {
		t.Errorf("a node without a system of its own: %v", err)
	}
}

func TestEvaluateForms(t *testing.T) {
	store := nixtest.New(t)
	const path = `"${builtins.storeDir}/zg1m98az4qa8h81bjz425pvrbnhw7613-nixos-system-web-25.05"`
	for _, test := range []struct {
		name, value, on, exclude, want string
	}{
		{name: "list", value: `[ { name = "web"; toplevel = system "w" {}; } { name = "db"; toplevel = system "d" {}; } ]`, want: "web db"},
		{name: "nodes as a list", value: `{ nodes = [ { name = "web"; toplevel = system "w" {}; } ]; defaults.ssh.user = "u"; }`, want: "web"},
		{name: "nodes as a set", value: `{ nodes = { web.toplevel = system "w" {}; db.toplevel = system "d" {}; }; }`, want: "db web by name"},
		{name: "nodes with order", value: `{ nodes = { web.toplevel = system "w" {}; db.toplevel = system "d" {}; }; order = [ "web" "db" ]; }`, want: "web db"},
		{name: "bare set", value: `{ web.toplevel = system "w" {}; db.toplevel = system "d" {}; }`, want: "db web by name"},
		{name: "configuration as toplevel", value: `{ web.toplevel = { options = {}; config.system.build.toplevel = system "w" {}; }; }`, want: "web by name"},
		{name: "configuration as node", value: `{ web.config.system.build.toplevel = system "w" {}; }`, want: "web by name"},
		{name: "a node called config", value: `{ config.toplevel = system "w" {}; }`, want: "config by name"},
		{name: "store path", value: `{ web.toplevel = ` + path + `; }`, want: "web:path by name"},
		{name: "text of a derivation", value: `{ web.toplevel = "${system "w" {}}"; }`, want: "web by name"},
		{name: "null fields", value: `{ web = { toplevel = system "w" {}; host = null; tags = null; ssh = null; }; }`, want: "web by name"},
		{name: "one selected, the others abort", value: `{ web.toplevel = system "w" {}; db.toplevel = abort "db"; x = { toplevel = abort "x"; tags = [ "t" ]; }; }`, on: "web", want: "db:left-out web x:left-out by name"},
		{name: "glob and tag", value: `[ { name = "w.1"; toplevel = system "w" {}; } { name = "wx1"; toplevel = abort ""; } { name = "b"; toplevel = system "b" {}; tags = [ "eu" ]; } ]`, on: "w.*,@e?", want: "w.1 wx1:left-out b"},
		{name: "all of several", value: `[ { name = "w1"; toplevel = system "w" {}; tags = [ "a" "b" ]; } { name = "w2"; toplevel = abort ""; tags = [ "a" ]; } { name = "x"; toplevel = abort ""; tags = [ "a" "b" ]; } { name = "y"; toplevel = abort ""; } ]`, on: "w*&@a&@b", want: "w1 w2:left-out x:left-out y:left-out"},
		{name: "the order stays the list's", value: `[ { name = "b"; toplevel = system "b" {}; } { name = "c"; toplevel = abort ""; } { name = "a"; toplevel = system "a" {}; } ]`, on: "a,b", want: "b c:left-out a"},
		{name: "excluding what no node is", value: `[ { name = "a"; toplevel = system "w" {}; tags = [ "x" ]; } { name = "b"; toplevel = system "b" {}; tags = [ "y" ]; } ]`, exclude: "@x&@y", want: "a b"},
		{name: "excluding all of several", value: `[ { name = "a"; toplevel = system "w" {}; tags = [ "x" ]; } { name = "b"; toplevel = abort ""; tags = [ "x" "y" ]; } ]`, exclude: "@x&@y", want: "a b:left-out"},
		{name: "excluded", value: `[ { name = "a"; toplevel = system "w" {}; } { name = "b"; toplevel = abort ""; } ]`, exclude: "b", want: "a b:left-out"},
		{name: "an unselected configuration is not looked into", value: `{ a = { options = {}; config = abort ""; }; b.toplevel = system "b" {}; }`, on: "b", want: "a:left-out b by name"},
		{name: "throw", value: `{ a.toplevel = throw "no a"; b.toplevel = system "b" {}; }`, want: "a:failed b by name"},
		{name: "abort", value: `{ a.toplevel = abort "no a"; b.toplevel = system "b" {}; c.toplevel = 1 + ""; }`, want: "a:failed b c:failed by name"},
		{name: "a configuration without toplevel", value: `{ a = { options = {}; config = {}; }; b.toplevel = system "b" {}; }`, want: "a:failed b by name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := evaluate(t, store, `{ nodes = `+test.value+`; }`, "nodes", selecting(t, test.on, test.exclude))
			if err != nil {
				t.Fatal(err)
			}
			if got := brief(m); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			for _, n := range m.Nodes {
				if n.DrvPath == "" {
					continue
				}
				if _, err := os.Stat(n.DrvPath); err != nil {
					t.Errorf("the derivation of %s was not written: %v", n.Name, err)
				}
				if _, err := os.Stat(n.Toplevel); err == nil {
					t.Errorf("%s was built by evaluating it", n.Name)
				}
			}
		})
	}
}

func TestEvaluateCarriesTheSettings(t *testing.T) {
	store := nixtest.New(t)
	m, err := evaluate(t, store, `{ nodes = {
	  defaults = { elevate = "sudo"; ssh = { user = "deploy"; key = "~/.ssh/id"; options = [ "Port=22" ]; }; };
	  nodes = [ { name = "web"; host = "10.0.0.1"; tags = [ "eu" "www" ]; toplevel = system "w" {};
	    elevate = "doas"; expect = { machineId = "0123456789abcdef0123456789abcdef"; hostName = "web"; }; ignoreUnits = [ "a.service" "b-*" ];
	    ssh = { host = "h"; user = "u"; key = "/k"; hostKey = "`+hostKey+`"; options = [ "ProxyCommand=nc \"%h\" $x ''\${y}" ]; }; } ];
	}; }`, "nodes", nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Ref = ""
	m.Nodes[0].Toplevel, m.Nodes[0].DrvPath = filepath.Base(m.Nodes[0].Toplevel)[33:], filepath.Base(m.Nodes[0].DrvPath)[33:]
	var want Map
	want.Ordered = true
	want.Defaults.User, want.Defaults.Key, want.Defaults.Options = "deploy", "~/.ssh/id", []string{"Port=22"}
	want.Elevate = "sudo"
	web := Node{Name: "web", Host: "10.0.0.1", Tags: []string{"eu", "www"}, Selected: true, Toplevel: "w", DrvPath: "w.drv", System: nixtest.Platform()}
	web.Elevate, web.IgnoreUnits = "doas", []string{"a.service", "b-*"}
	web.Expect = Expect{MachineID: "0123456789abcdef0123456789abcdef", HostName: "web"}
	web.SSH.Host, web.SSH.User, web.SSH.Key, web.SSH.HostKey = "h", "u", "/k", hostKey
	web.SSH.Options = []string{`ProxyCommand=nc "%h" $x ''${y}`}
	want.Nodes = []Node{web}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Neither settings nor selection force a system.
func TestEvaluateSettingsOnly(t *testing.T) {
	store := nixtest.New(t)
	m, err := evaluate(t, store, `{ nodes = [
	    { name = "a"; host = "10.0.0.1"; toplevel = abort "a"; tags = [ "t" ]; }
	    { name = "b"; toplevel = throw "b"; ssh.user = "u"; }
	    { name = "c"; toplevel = { options = {}; config = abort "c"; }; }
	  ]; }`, "nodes", func(r *Request) {
		selecting(t, "", "@t")(r)
		r.SettingsOnly = true
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := brief(m), "a:left-out b:nothing c:nothing"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if m.Nodes[0].Host != "10.0.0.1" || m.Nodes[1].SSH.User != "u" {
		t.Errorf("got %+v", m.Nodes)
	}
	if _, err := evaluate(t, store, `{ nodes = throw "the whole map"; }`, "nodes", func(r *Request) { r.SettingsOnly = true }); err == nil || !strings.Contains(err.Error(), "the whole map") {
		t.Errorf("got %v", err)
	}
}

func TestEvaluateOwnWordsOfANode(t *testing.T) {
	store := nixtest.New(t)
	m, err := evaluate(t, store, `{ nodes = { a.toplevel = throw "the first reason"; b.toplevel = abort "the second reason"; }; }`, "nodes", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, reasons := range [][2]string{{"the first reason", "the second reason"}, {"the second reason", "the first reason"}} {
		if got := m.Nodes[i].EvalError; !strings.Contains(got, reasons[0]) || strings.Contains(got, reasons[1]) {
			t.Errorf("%s: got %q", m.Nodes[i].Name, got)
		}
	}
}

func TestEvaluateRefusals(t *testing.T) {
	store := nixtest.New(t)
	for _, test := range []struct {
		name, outputs, on string
		want              []string
	}{
		{"no such attribute", `{ other = 1; }`, "", []string{"does not provide attribute"}},
		{"a package", `{ packages.` + nixtest.Platform() + `.nodes = system "p" {}; nodes = []; }`, "", []string{"Nix took packages." + nixtest.Platform() + ".nodes: found a package (p); wanted a node map"}},
		{"a map among the packages", `{ legacyPackages.` + nixtest.Platform() + `.nodes = {}; }`, "", []string{"Nix took legacyPackages." + nixtest.Platform() + ".nodes: there are no nodes"}},
		{"a function", `{ nodes = x: x; }`, "", []string{"#nodes: found a function; wanted a node map"}},
		{"a text", `{ nodes = "web"; }`, "", []string{"found a string; wanted a node map"}},
		{"a configuration", `{ nodes = { options = {}; config = abort ""; }; }`, "", []string{"found a NixOS configuration; wanted a node map"}},
		{"empty list", `{ nodes = []; }`, "", []string{"there are no nodes"}},
		{"empty set", `{ nodes.nodes = {}; }`, "", []string{"nodes: there are no nodes"}},
		{"the map throws", `{ nodes = throw "the whole map"; }`, "", []string{"evaluating", "the whole map"}},
		{"a setting throws", `{ nodes.a = { toplevel = system "a" {}; ssh.user = throw "who"; }; }`, "", []string{"evaluating", "who"}},
		{"defaults without nodes", `{ nodes = { defaults = {}; web = {}; }; }`, "", []string{"found `defaults` but no `nodes`"}},
		{
			"many at once", `{ nodes = { defaults.ssh.hostKey = abort ""; defalts = abort ""; nodes = [
			  { name = "web"; toplevel = 5; hots = abort ""; ssh = { user = 5; key = ./key; opts = abort ""; }; }
			  { name = "web"; toplevel = system "w" {}; }
			  { name = "a b"; toplevel = "/etc/passwd"; }
			  { toplevel = system "w" {}; }
			  { name = "no"; }
			  { name = "drv"; drvPath = "x"; toplevel = system "w" {}; }
			  "text" ]; }; }`, "",
			[]string{
				`defaults.ssh.hostKey: a pinned host key belongs to one node`,
				`defalts: unknown field "defalts"; did you mean "defaults"?`,
				`nodes.web.hots: unknown field "hots"; did you mean "host"?`,
				`nodes.web.ssh.user: found the number 5; wanted a string`,
				`nodes.web.ssh.key: found a Nix path; wanted a string`,
				`nodes.web.ssh.opts: unknown field "opts"`,
				`nodes[1]: the name "web" is taken by nodes[0]`,
				`nodes.web.toplevel: found a number; wanted a system`,
				`"a b": wanted a name of letters`,
				`nodes."a b".toplevel: found the string "/etc/passwd"; wanted a system`,
				"nodes[3]: the node has no `name`",
				"nodes.no: the node has no `toplevel`",
				"nodes.drv.drvPath: this field is the program's own result",
				"nodes[6]: found a string; wanted a node",
			},
		},
		{
			"wrong toplevels beside an abort", `{ nodes = { a.toplevel = abort "a"; b.toplevel = 5; c.toplevel = [ ]; }; }`, "",
			[]string{"nodes.b.toplevel: found a number", "nodes.c.toplevel: found a list"},
		},
		{
			"order", `{ nodes = { nodes = { a.toplevel = 1; b.toplevel = 1; }; order = [ "a" "a" "x" ]; }; }`, "a",
			[]string{`order: the node "b" is missing`, `order: there is no node "x"`, "order: a node is named twice"},
		},
		{"settings that are none", `{ nodes = { a = { toplevel = system "a" {}; ssh = x: x; }; b = { toplevel = system "b" {}; ssh = "b"; tags = "t"; }; }; }`, "", []string{
			"nodes.a.ssh: found a function; wanted an object with fields",
			`nodes.b.ssh: found the string "b"; wanted an object`, `nodes.b.tags: found the string "t"; wanted a list`,
		}},
		{"defaults that are none", `{ nodes = { defaults = system "d" {}; nodes.a.toplevel = system "a" {}; }; }`, "", []string{"defaults: found a package (d); wanted an object"}},
		{"identity, units and elevation that are none", `{ nodes = { defaults.elevate = "su"; nodes.a = { toplevel = system "a" {}; elevate = true;
		  expect = { machineId = "0123"; hostname = abort ""; hostName = "a b"; }; ignoreUnits = [ "nginx" 5 "a.service" ]; }; nodes.b = { toplevel = system "b" {}; expect = "b"; ignoreUnits = "x*"; }; }; }`, "", []string{
			"defaults.elevate: \"su\": wanted the program that makes the login user root: `sudo` or `doas`",
			"nodes.a.elevate: found the boolean true; wanted a string: the program that makes the login user root",
			`nodes.a.expect.machineId: "0123": wanted a machine id`,
			`nodes.a.expect.hostname: unknown field "hostname"; did you mean "hostName"?`,
			`nodes.a.expect.hostName: "a b": wanted a host name`,
			`nodes.a.ignoreUnits[0]: "nginx": wanted a unit's full name`,
			"nodes.a.ignoreUnits[1]: found the number 5; wanted a string",
			`nodes.b.expect: found the string "b"; wanted an object`,
			`nodes.b.ignoreUnits: found the string "x*"; wanted a list`,
		}},
		{"order of a list", `{ nodes = { nodes = [ { name = "a"; toplevel = system "a" {}; } ]; order = [ "a" ]; }; }`, "", []string{"remove `order`"}},
		{"another name inside", `{ nodes.web = { name = "db"; toplevel = system "a" {}; }; }`, "", []string{`nodes.web.name: found "db"`}},
		{"nothing selected", `{ nodes.web.toplevel = abort ""; }`, "wbe,@t", []string{`"wbe" selects no node; did you mean "web"?`, `"@t" selects no node`}},
		{"a tag that no node has", `{ nodes = [ { name = "web"; toplevel = abort ""; tags = [ "europe" "www" ]; } ]; }`, "web&@euorpe", []string{`"@euorpe" selects no node; did you mean "@europe"?`}},
		{"tags that no node has together", `{ nodes = [ { name = "web"; toplevel = abort ""; tags = [ "a" ]; } { name = "db"; toplevel = abort ""; tags = [ "b" ]; } ]; }`, "@a&@b", []string{`"@a&@b" selects no node: none is all of these`}},
		{"packages as nodes", `{ nodes.hello = system "hello" {}; }`, "", []string{"nodes.hello: found a package (hello); wanted a node"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := evaluate(t, store, test.outputs, "nodes", selecting(t, test.on, ""))
			var bad *MapError
			if !errors.As(err, &bad) {
				t.Fatalf("got %+v, %v", m, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("not said: %s\nin %v", want, err)
				}
			}
		})
	}
}

func TestEvaluateExcludingAll(t *testing.T) {
	store := nixtest.New(t)
	_, err := evaluate(t, store, `{ nodes.web.toplevel = abort ""; }`, "nodes", selecting(t, "", "*"))
	if err == nil || !strings.Contains(err.Error(), "the selection leaves no node") {
		t.Errorf("got %v", err)
	}
}

func TestBuild(t *testing.T) {
	store := nixtest.New(t)
	m, err := evaluate(t, store, `let
	    bad = system "bad" { args = [ "-c" "echo the first reason; exit 3" ]; };
	    worse = system "worse" { args = [ "-c" "echo the second reason; exit 4" ]; };
	  in { nodes = {
	    good.toplevel = system "good" { dep = system "dep" {}; };
	    above.toplevel = system "above" { inherit bad; };
	    worse.toplevel = worse;
	    gone.toplevel = "${builtins.storeDir}/zg1m98az4qa8h81bjz425pvrbnhw7613-gone";
	    thrown.toplevel = throw "no";
	  }; }`, "nodes", nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := t.TempDir()
	failed, err := Builder{Runner: store.Runner, Roots: roots}.Build(context.Background(), m.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ node, want, not string }{
		{"above", "the first reason", "the second reason"},
		{"worse", "the second reason", "the first reason"},
		{"gone", "-gone", "reason"},
	} {
		err := failed[test.node]
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), test.not) {
			t.Errorf("%s: got %v", test.node, err)
		}
		delete(failed, test.node)
	}
	if len(failed) > 0 {
		t.Errorf("failed too: %v", failed)
	}
	var good Node
	for _, n := range m.Nodes {
		if n.Name == "good" {
			good = n
		}
	}
	if _, err := os.Stat(good.Toplevel); err != nil {
		t.Errorf("good was not built: %v", err)
	}
	if !rooted(t, roots, good.Toplevel) {
		t.Errorf("nothing in %s keeps %s", roots, good.Toplevel)
	}
	// All is there now: the same again needs no builder.
	again := t.TempDir()
	var quiet strings.Builder
	failed, err = Builder{Runner: store.Runner, Roots: again, Stderr: &quiet}.Build(context.Background(), []Node{good})
	if err != nil || len(failed) > 0 {
		t.Errorf("again: %v, %v", failed, err)
	}
	if strings.Contains(quiet.String(), "building") || !rooted(t, again, good.Toplevel) {
		t.Errorf("again: Nix said %q", quiet.String())
	}
}

func rooted(t *testing.T, dir, path string) bool {
	t.Helper()
	links, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == path {
			return true
		}
	}
	return false
}

// With -L the builder's output is in the stream, and only there.
func TestBuildLogs(t *testing.T) {
	store := nixtest.New(t)
	m, err := evaluate(t, store, `{ nodes.a.toplevel = system "a" { args = [ "-c" "echo a line; exit 3" ]; }; }`, "nodes", nil)
	if err != nil {
		t.Fatal(err)
	}
	var stream strings.Builder
	failed, err := Builder{Runner: store.Runner, Roots: t.TempDir(), Logs: true, Stderr: &stream}.Build(context.Background(), m.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stream.String(), "a line\n") {
		t.Errorf("the stream is %q", stream.String())
	}
	if failed["a"] == nil || !strings.Contains(failed["a"].Error(), "failed with exit code 3") {
		t.Errorf("got %v", failed["a"])
	}
}

// manyNodes is a flake's output of n nodes, as a set with an order.
func manyNodes(n int) string {
	return fmt.Sprintf(`{ nodes = let names = builtins.genList (i: "web-${toString i}") %d; in {
	  order = names;
	  defaults.ssh.options = [ "Port=2222" ];
	  nodes = builtins.listToAttrs (map (name: { inherit name; value = {
	    toplevel = system name {}; host = "10.0.0.1"; tags = [ "eu" ]; ssh.hostKey = "`+hostKey+`"; }; }) names);
	}; }`, n)
}

// Nothing here is quadratic: ten times the nodes take ten times as long, plus Nix's start.
func BenchmarkEvaluate(b *testing.B) {
	store := nixtest.New(b)
	for _, n := range []int{10, 100, 1000, 10000} {
		ref := store.Flake(b, manyNodes(n)) + "#nodes"
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("web-%d", i)
		}
		every, err := ParseSelectors(strings.Join(names, ","))
		if err != nil {
			b.Fatal(err)
		}
		for _, mode := range []struct {
			name    string
			request Request
		}{
			{"settings", Request{Ref: ref, SettingsOnly: true}},
			{"systems", Request{Ref: ref}},
			{"by name", Request{Ref: ref, SettingsOnly: true, Include: every}},
		} {
			if n > 1000 && mode.name != "settings" {
				continue // a store of ten thousand systems, or a command line too long
			}
			b.Run(fmt.Sprintf("%s/%d", mode.name, n), func(b *testing.B) {
				for b.Loop() {
					m, err := Evaluator{Runner: store.Runner}.Evaluate(context.Background(), mode.request)
					if err != nil || len(m.Nodes) != n {
						b.Fatalf("%d nodes, %v", len(m.Nodes), err)
					}
				}
			})
		}
	}
}

func TestMissingNixIsNamed(t *testing.T) {
	run := child.Local{Env: []string{"PATH=/nonexistent"}}
	t.Setenv("PATH", "/nonexistent")
	_, err := Evaluator{Runner: run}.Evaluate(context.Background(), Request{Ref: ".#nodes"})
	if !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func FuzzNixString(f *testing.F) {
	store := nixtest.New(f)
	for _, text := range []string{"", "a", `"; x = "`, "${builtins.abort 1}", "$${x}", "\\${x}", "a\r\nb\t", "''", "é\u2028", "\\", "$"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Skip("no text that Nix can hold and JSON can carry")
		}
		result, err := store.Runner.Run(context.Background(), child.Command{
			Name: "nix-instantiate", Args: []string{"--eval", "--strict", "--json", "--expr", nixString(text)},
		})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var got string
		if err := json.Unmarshal(result.Stdout, &got); err != nil || got != text {
			t.Errorf("%q became %q (%v)", text, got, err)
		}
	})
}

// Systems that the caller has are not even looked at.
func TestGivenSystemsAreNotEvaluated(t *testing.T) {
	store := nixtest.New(t)
	for _, on := range []string{"", "a,b"} {
		m, err := evaluate(t, store, `{ nodes = [ { name = "a"; toplevel = abort "no a"; } { name = "b"; toplevel = system "b" {}; } { name = "c.d"; toplevel = 1; tags = [ "t" ]; } ]; }`, "nodes", func(r *Request) {
			selecting(t, on, "")(r)
			r.Given = []string{"a", "c.d"}
		})
		want := "a:nothing b c.d:nothing"
		if on != "" {
			want = "a:nothing b c.d:left-out"
		}
		if err != nil || brief(m) != want {
			t.Errorf("--on %q: got %q, %v; want %q", on, brief(m), err, want)
		}
	}
}

func TestSelectorMatches(t *testing.T) {
	for _, test := range []struct {
		text string
		want string
	}{{"a", "a"}, {"a*", "a ab a.b"}, {"a.?", "a.b"}, {"@eu", "ab"}, {"@e*", "ab"}, {"a*&@eu", "ab"}, {"x*&@eu", ""}, {"*", "a ab a.b xa"}} {
		selectors, err := ParseSelectors(test.text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"a", "ab", "a.b", "xa"} {
			if selectors[0].Matches(name, map[string][]string{"ab": {"eu"}}[name]) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s matches %q, want %q", test.text, got, test.want)
		}
	}
}
