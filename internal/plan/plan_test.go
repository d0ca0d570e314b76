package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/google/go-cmp/cmp"
)

func TestMake(t *testing.T) {
	m := flake.Map{
		Ref:      ".#nodes",
		Ordered:  true,
		Defaults: settings.SSH{User: "deploy"},
		Elevate:  "sudo",
		Nodes: []flake.Node{
			{Name: "web", Host: "10.0.0.1", Tags: []string{"eu"}, Selected: true, Toplevel: "/nix/store/w", DrvPath: "/nix/store/w.drv", System: "x86_64-linux"},
			{Name: "old"},
			{Name: "db", Selected: true, EvalError: "error: no", Elevate: "doas",
				Expect: flake.Expect{MachineID: "0123456789abcdef0123456789abcdef", HostName: "db"}, IgnoreUnits: []string{"a.service", "b-*"}},
		},
	}
	env := settings.Environment{Config: "/c", Nodes: map[string]settings.SSH{"old": {User: "x"}, "db": {Host: "h"}}}
	got, err := Make(m, env)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web", "db"}, []string{got.Nodes[0].Name, got.Nodes[1].Name}); diff != "" || len(got.Nodes) != 2 {
		t.Fatalf("got %+v", got.Nodes)
	}
	web, db := got.Nodes[0], got.Nodes[1]
	if web.Toplevel != "/nix/store/w" || web.DrvPath != "/nix/store/w.drv" || web.System != "x86_64-linux" || web.Tags[0] != "eu" {
		t.Errorf("got %+v", web)
	}
	if want := (settings.Value[string]{V: "10.0.0.1", Origin: settings.OriginRoster}); web.SSH.Host != want {
		t.Errorf("got %+v", web.SSH.Host)
	}
	if db.EvalError != "error: no" || db.SSH.Host.V != "h" || db.SSH.User.V != "deploy" {
		t.Errorf("got %+v", db)
	}
	if web.Elevate.V != "sudo" || db.Elevate != (settings.Value[string]{V: "doas", Origin: ".#nodes nodes.db.elevate"}) {
		t.Errorf("elevate: got %+v, %+v", web.Elevate, db.Elevate)
	}
	if db.Expect != m.Nodes[2].Expect || web.Expect != (flake.Expect{}) {
		t.Errorf("expect: got %+v, %+v", db.Expect, web.Expect)
	}
	for unit, want := range map[string]bool{"a.service": true, "b-1.timer": true, "b.service": false} {
		if got := db.Ignores(unit); got != want || web.Ignores(unit) {
			t.Errorf("Ignores(%q): got %v for db, %v for web", unit, got, web.Ignores(unit))
		}
	}
	if want := (settings.Value[string]{V: "/c", Origin: settings.KeyConfig}); got.Config != want || got.Notes != nil {
		t.Errorf("got %+v, %q", got.Config, got.Notes)
	}
}

func TestMakeSaysThatNodesGoByName(t *testing.T) {
	m := flake.Map{Ref: ".#nodes", Nodes: []flake.Node{{Name: "a", Selected: true}, {Name: "b", Selected: true}}}
	got, err := Make(m, settings.Environment{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".#nodes is an attribute set without `order`: the nodes go by name"}, got.Notes); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestMakeChecksNodesThatAreLeftOut(t *testing.T) {
	m := flake.Map{Ref: ".#nodes", Nodes: []flake.Node{{Name: "a", SSH: settings.SSH{Host: "*"}}}}
	_, err := Make(m, settings.Environment{})
	var bad *settings.Error
	if !errors.As(err, &bad) {
		t.Errorf("got %v", err)
	}
}

func TestMakeRefusesUnitsThatTheSchemaCannot(t *testing.T) {
	m := flake.Map{Ref: ".#nodes", Nodes: []flake.Node{{Name: "a", IgnoreUnits: []string{"a.service", "[ab].service"}}}}
	_, err := Make(m, settings.Environment{})
	if err == nil || !strings.Contains(err.Error(), `.#nodes nodes.a.ignoreUnits[1]: "[ab].service": wanted a unit's full name`) {
		t.Errorf("got %v", err)
	}
}

func TestMakeSaysWhereTheCombinedSystemGoes(t *testing.T) {
	node := func(name string, selected bool) flake.Node {
		return flake.Node{Name: name, Selected: selected, Toplevel: "t"}
	}
	for _, tt := range []struct {
		name    string
		ordered bool
		nodes   []flake.Node
		want    string
	}{
		{"one node", true, []flake.Node{node("a", true)}, "to a"},
		{"a list", true, []flake.Node{node("b", true), node("a", false)}, "of all 2 nodes goes to b, the first"},
		{"by name", false, []flake.Node{node("a", true), node("b", false)}, "goes to a, the first by name, since .#nodes"},
	} {
		p, err := Make(flake.Map{Ref: ".#nodes", Ordered: tt.ordered, Combined: true, Nodes: tt.nodes}, settings.Environment{})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Nodes) != 1 || !p.Nodes[0].Combined || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], tt.want) {
			t.Errorf("%s: %+v", tt.name, p)
		}
	}
}
