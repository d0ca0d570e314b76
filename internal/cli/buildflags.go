package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
)

// buildFlags are the flags of where systems are built and whether they stay.
type buildFlags struct {
	there bool
	keep  string // a directory; empty when nothing is kept
}

func (f *buildFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.there, "build-on-target", false, "copy derivations and let each host build its own system, with its own settings of Nix")
	flags.StringVar(&f.keep, "keep-result", "", "keep what was built from the garbage collector, by links result-NODE in `DIR` (default: the working directory)")
	flags.Lookup("keep-result").NoOptDefVal = "."
}

func (f *buildFlags) check(goal deploy.Goal) error {
	switch {
	case f.there && goal == deploy.GoalBuild:
		return usageError{fmt.Errorf("--build-on-target with --goal build: that goal contacts no host (push is the one that builds there and activates nothing)")}
	case f.there && f.keep != "":
		return usageError{fmt.Errorf("--keep-result with --build-on-target: the systems are built on the hosts, where the system profile keeps them")}
	}
	return nil
}

// here are the nodes whose systems are built on the deployer.
func (f *buildFlags) here(nodes []flake.Node) []flake.Node {
	if !f.there {
		return nodes
	}
	var rest []flake.Node
	for _, n := range nodes {
		if n.DrvPath == "" {
			rest = append(rest, n)
		}
	}
	return rest
}

// links are the links that keep what was built, by path, each with its store path.
func (f *buildFlags) links(p Process, nodes []flake.Node, failed map[string]error) map[string]string {
	dir := f.keep
	if !filepath.IsAbs(dir) {
		base := p.Dir
		if base == "" {
			base, _ = os.Getwd() // without one Nix itself complains
		}
		dir = filepath.Join(base, dir)
	}
	links := map[string]string{}
	for _, n := range nodes {
		if n.Toplevel != "" && failed[n.Name] == nil {
			links[filepath.Join(dir, "result-"+n.Name)] = n.Toplevel
		}
	}
	return links
}
