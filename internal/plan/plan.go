// Package plan turns the node map and the environment into the ordered list
// of work. It is pure.
package plan

import (
	"fmt"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
)

// Plan is what a run has to do.
type Plan struct {
	// Nodes are the selected nodes in list order.
	Nodes []Node
	// LeftOut are the names of the others, in list order.
	LeftOut []string
	// Config is the client configuration that the operator gave; the value
	// is "" when there is none.
	Config settings.Value[string]
	// Notes are remarks for the operator about the plan as a whole.
	Notes []string
}

// Node is one node's work.
type Node struct {
	Name string
	Tags []string
	// Toplevel, DrvPath and System are as in [flake.Node].
	Toplevel, DrvPath, System string
	SSH                       settings.Resolved
	// Elevate is how the login user becomes root: sudo, doas, or "" for not at all.
	Elevate settings.Value[string]
	// Expect is who the host must be.
	Expect flake.Expect
	// IgnoreUnits are names and globs of units whose failure doesn't count; see [Node.Ignores].
	IgnoreUnits []string
	// EvalError is why the node doesn't evaluate; there is nothing to deploy then.
	EvalError string
	// Combined says that the toplevel is the one system of all nodes of the map.
	Combined bool
}

// Make plans the deployment of the selected nodes. The settings of all nodes
// are checked, selected or not. The error is a [*settings.Error].
func Make(m flake.Map, env settings.Environment) (Plan, error) {
	layers := settings.Flake{Source: m.Ref, Defaults: m.Defaults, Elevate: m.Elevate}
	for _, n := range m.Nodes {
		layers.Nodes = append(layers.Nodes, settings.Node{
			Name: n.Name, Host: n.Host, SSH: n.SSH,
			Elevate: n.Elevate, IgnoreUnits: n.IgnoreUnits,
		})
	}
	resolved, err := settings.Resolve(layers, env)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Config: settings.Value[string]{V: env.Config, Origin: settings.KeyConfig}}
	for i, n := range m.Nodes {
		if !n.Selected {
			p.LeftOut = append(p.LeftOut, n.Name)
			continue
		}
		p.Nodes = append(p.Nodes, Node{
			Name: n.Name, Tags: n.Tags,
			Toplevel: n.Toplevel, DrvPath: n.DrvPath, System: n.System,
			SSH: resolved[i], EvalError: n.EvalError,
			Elevate: layers.Elevation(layers.Nodes[i], env), Expect: n.Expect, IgnoreUnits: n.IgnoreUnits,
			Combined: m.Combined,
		})
	}
	if m.Combined {
		p.Notes = append(p.Notes, combination(m, p.Nodes[0].Name))
	}
	if !m.Ordered && len(p.Nodes) > 1 {
		p.Notes = append(p.Notes, m.Ref+" is an attribute set without `order`: the nodes go by name")
	}
	return p, nil
}

// combination says where the combined system goes, and why there.
func combination(m flake.Map, first string) string {
	switch {
	case len(m.Nodes) == 1:
		return "combined: one system of all nodes goes to " + first
	case m.Ordered:
		return fmt.Sprintf("combined: one system of all %d nodes goes to %s, the first", len(m.Nodes), first)
	}
	return fmt.Sprintf("combined: one system of all %d nodes goes to %s, the first by name, since %s is an attribute set without `order`", len(m.Nodes), first, m.Ref)
}

// Ignores tells whether the failure of a unit doesn't count.
func (n Node) Ignores(unit string) bool {
	for _, glob := range n.IgnoreUnits {
		if settings.MatchUnit(glob, unit) {
			return true
		}
	}
	return false
}
