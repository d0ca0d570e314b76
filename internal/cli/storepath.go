package cli

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nix-community/go-nix/pkg/storepath"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/nearest"
	"github.com/deploy-ssh/deploy-ssh/internal/schema"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
)

// given is a node's toplevel that the operator names, so that it isn't evaluated.
type given struct{ node, path string }

// addSystems adds the flag of the verbs that take nodes' systems.
func (f *mapFlags) addSystems(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.storePaths, "store-path", nil, storePathMeaning)
}

const storePathMeaning = "a node's system, `NAME=PATH`, valid in this machine's store, in place of evaluating it; may be repeated. " +
	"Without a flake reference nothing is evaluated: the nodes are those of " + settings.KeyNodes + ", in the order of these flags"

// given reads the --store-path flags and asks the store whether the paths are there.
func (f *mapFlags) given(ctx context.Context, p Process) ([]given, error) {
	all, err := parseGiven(f.storePaths, p.Dir)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var paths []string
	for _, g := range all {
		paths = append(paths, g.path)
	}
	invalid, err := closure.Invalid(ctx, p.local(), paths)
	if err != nil {
		return nil, err
	}
	var problems []settings.Problem
	for _, g := range all {
		if slices.Contains(invalid, g.path) {
			problems = append(problems, settings.Problem{Source: "--store-path " + g.node + "=" + g.path,
				Text: "it is not valid in this machine's store; build it here, or fetch it from a cache: nix-store --realise " + g.path})
		}
	}
	return all, settings.Err(problems)
}

// parseGiven reads NAME=PATH items. A PATH beside the store may be a link into it, as
// nix build makes one. All problems are in the error, in their order.
func parseGiven(items []string, dir string) ([]given, error) {
	var all []given
	var problems []settings.Problem
	for _, item := range items {
		g, err := parseOneGiven(item, dir)
		if err == nil && slices.ContainsFunc(all, func(other given) bool { return other.node == g.node }) {
			err = fmt.Errorf("the node %s has a system already; each node is named once", g.node)
		}
		if err != nil {
			problems = append(problems, settings.Problem{Source: "--store-path " + item, Text: err.Error()})
			continue
		}
		all = append(all, g)
	}
	if len(problems) > 0 {
		return nil, usageError{settings.Err(problems)}
	}
	return all, nil
}

func parseOneGiven(item, dir string) (given, error) {
	name, path, ok := cut(item)
	switch {
	case !ok || path == "":
		return given{}, fmt.Errorf("a node's name and a store path are wanted, NAME=%s/…", storepath.StoreDir)
	case !schema.Matches("name", name):
		return given{}, fmt.Errorf("the node %swanted %s", schema.Shown("name", name), schema.Description("name"))
	}
	if !strings.HasPrefix(path, storepath.StoreDir+"/") {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return given{}, fmt.Errorf("it is neither a store path nor a link to one: %w", err)
		}
		path = target
	}
	path = strings.TrimRight(path, "/")
	switch {
	case storepath.Validate(path) != nil || filepath.Dir(path) != storepath.StoreDir:
		return given{}, fmt.Errorf("%s is no store path; wanted that of a whole system, %s/HASH-nixos-system-…", path, storepath.StoreDir)
	case strings.HasSuffix(path, ".drv"):
		return given{}, fmt.Errorf("%s is a derivation, not a system; build it first, and give the path that comes of it: nix-store --realise %[1]s", path)
	}
	return given{name, path}, nil
}

// override gives the nodes of a flake's map the systems that the operator named.
func override(m flake.Map, all []given) error {
	var problems []settings.Problem
	for _, g := range all {
		i := slices.IndexFunc(m.Nodes, func(n flake.Node) bool { return n.Name == g.node })
		if i < 0 {
			problems = append(problems, unknownGiven(g, m.Ref, names(m.Nodes)))
			continue
		}
		if m.Nodes[i].Selected {
			m.Nodes[i].Toplevel, m.Nodes[i].DrvPath, m.Nodes[i].System = g.path, "", ""
		}
	}
	return settings.Err(problems)
}

// unused notes which systems were given of nodes that are not selected: whoever took one
// node for another would not see it otherwise.
func unused(m flake.Map, all []given) []string {
	var left []string
	for _, g := range all {
		if slices.ContainsFunc(m.Nodes, func(n flake.Node) bool { return n.Name == g.node && !n.Selected }) {
			left = append(left, g.node)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return []string{"--store-path has systems of nodes that are not selected: " + some(left)}
}

func unknownGiven(g given, source string, known []string) settings.Problem {
	return settings.Problem{Source: "--store-path " + g.node, Text: fmt.Sprintf("%s has no such node%s", source, nearest.Hint(g.node, known))}
}

func names(nodes []flake.Node) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return all
}

// roster is the node map of a run without a flake: the nodes of the environment's
// map. Those with a system come first, in the order of the flags.
func roster(env settings.Environment, all []given, include, exclude []flake.Selector) (flake.Map, error) {
	m := flake.Map{Ref: settings.KeyNodes, Ordered: true}
	known := slices.Sorted(maps.Keys(env.Nodes))
	var problems []settings.Problem
	systems := map[string]string{}
	for _, g := range all {
		systems[g.node] = g.path
		if _, ok := env.Nodes[g.node]; !ok {
			problems = append(problems, unknownGiven(g, settings.KeyNodes, known))
			continue
		}
		m.Nodes = append(m.Nodes, flake.Node{Name: g.node})
	}
	for _, name := range known {
		if systems[name] == "" {
			m.Nodes = append(m.Nodes, flake.Node{Name: name})
		}
	}
	for _, s := range slices.Concat(include, exclude) {
		if !slices.ContainsFunc(known, func(name string) bool { return s.Matches(name, nil) }) {
			problems = append(problems, settings.Problem{Source: settings.KeyNodes,
				Text: fmt.Sprintf("%q selects no node%s", s, nearest.Hint(s.String(), known))})
		}
	}
	selected := false
	for i, n := range m.Nodes {
		matches := func(s flake.Selector) bool { return s.Matches(n.Name, nil) }
		wanted := systems[n.Name] != ""
		if include != nil {
			wanted = slices.ContainsFunc(include, matches)
		}
		if !wanted || slices.ContainsFunc(exclude, matches) {
			continue
		}
		selected = true
		m.Nodes[i].Selected, m.Nodes[i].Toplevel = true, systems[n.Name]
		if m.Nodes[i].Toplevel == "" {
			problems = append(problems, settings.Problem{Source: "node " + n.Name,
				Text: fmt.Sprintf("it has no system, and there is no flake to take one from; wanted --store-path %s=PATH", n.Name)})
		}
	}
	if !selected && len(problems) == 0 {
		problems = append(problems, settings.Problem{Source: settings.KeyNodes, Text: "the selection leaves no node"})
	}
	return m, settings.Err(problems)
}

// withoutFlake reports whether a command line needs no flake reference.
func withoutFlake(cmd *cobra.Command) bool {
	flag := cmd.Flags().Lookup("store-path")
	return flag != nil && flag.Changed
}

// source splits the arguments of a verb: the flake reference, empty where the nodes
// come from the environment, and what is for Nix.
func source(args []string) (ref string, nixArgs []string) {
	if len(args) == 0 {
		return "", nil
	}
	return args[0], args[1:]
}
