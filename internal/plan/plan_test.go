package plan

import (
	"errors"
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
		Nodes: []flake.Node{
			{Name: "web", Host: "10.0.0.1", Tags: []string{"eu"}, Selected: true, Toplevel: "/nix/store/w", DrvPath: "/nix/store/w.drv", System: "x86_64-linux"},
			{Name: "old"},
			{Name: "db", Selected: true, EvalError: "error: no"},
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
