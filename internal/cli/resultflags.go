package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
)

// resultFlags are the flags of where the results of builds are and whether they stay.
type resultFlags struct {
	there bool
	keep  string // a directory; empty when nothing is kept
}

func (f *resultFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.there, "build-on-target", false, "copy derivations and let each host build its own system, with its own settings of Nix")
	flags.StringVar(&f.keep, "keep-result", "", "keep what was built from the garbage collector, by links result-NODE in `DIR` (default: the working directory)")
	flags.Lookup("keep-result").NoOptDefVal = "."
}

func (f *resultFlags) check(goal deploy.Goal) error {
	switch {
	case f.there && goal == deploy.GoalBuild:
		return usageError{fmt.Errorf("--build-on-target with --goal build: that goal contacts no host (push is the one that builds there and activates nothing)")}
	case f.there && f.keep != "":
		return usageError{fmt.Errorf("--keep-result with --build-on-target: the systems are built on the hosts, where the system profile keeps them")}
	}
	return nil
}

// here are the nodes whose systems are built on the deployer.
func (f *resultFlags) here(nodes []flake.Node) []flake.Node {
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

// kept keeps what was built for nodes. failed has those for which nothing was.
func (f *resultFlags) kept(ctx context.Context, p Process, nodes []flake.Node, failed map[string]error) error {
	if f.keep == "" {
		return nil
	}
	dir, err := filepath.Abs(p.path(f.keep))
	if err != nil {
		return err
	}
	links := map[string]string{}
	for _, n := range nodes {
		if n.Toplevel != "" && failed[n.Name] == nil {
			links[filepath.Join(dir, "result-"+n.Name)] = n.Toplevel
		}
	}
	return flake.Builder{Runner: p.local()}.Link(ctx, links)
}
