package flake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// Builder builds the systems of nodes.
type Builder struct {
	Runner child.Runner
	// Roots is an existing absolute directory, empty at first, for links that keep the systems from
	// being garbage collected for as long as the links exist.
	Roots string
	// Limit bounds one build of all systems; 0 means [BuildLimit].
	Limit time.Duration
	// Options are settings of Nix, each a name and a value.
	Options [][2]string
	// Logs says that builders' output goes to Stderr as it comes. Without it,
	// the last lines of a failed builder's output are part of its error.
	Logs bool
	// Stderr receives what Nix says while it says it; nil means nobody.
	Stderr io.Writer
}

// Build builds what isn't in the store, all nodes together, and returns an
// error for each node whose system is not there afterwards, by name.
// Nodes without a toplevel are left alone. The second result is an error that
// concerns no single node: a cancelled context, a limit, or no Nix at all.
func (b Builder) Build(ctx context.Context, nodes []Node) (map[string]error, error) {
	limit := b.Limit
	if limit == 0 {
		limit = BuildLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("building took longer than %v", limit))
	defer cancel()
	var wanted []Node
	var targets []string
	for _, n := range nodes {
		if n.Toplevel == "" {
			continue
		}
		wanted = append(wanted, n)
		targets = append(targets, n.target())
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	out, err := b.realise(ctx, "build", targets, b.Stderr)
	if stopped(err) {
		return nil, err
	}
	if err == nil {
		return b.compare(wanted, out), nil
	}
	return b.blame(ctx, wanted, err)
}

// target is what nix-store --realise is asked for.
func (n Node) target() string {
	if n.DrvPath != "" {
		return n.DrvPath + "!out"
	}
	return n.Toplevel
}

// realise builds or fetches and returns the paths that are there now.
// Each call needs a name of its own for its links.
func (b Builder) realise(ctx context.Context, name string, targets []string, stderr io.Writer) ([]string, error) {
	args := []string{"--realise", "--keep-going", "--add-root", filepath.Join(b.Roots, name), "--indirect"}
	if !b.Logs {
		args = append(args, "--no-build-output")
	}
	for _, o := range b.Options {
		args = append(args, "--option", o[0], o[1])
	}
	result, err := b.Runner.Run(ctx, child.Command{
		Name: "nix-store", Args: append(args, targets...), Stderr: stderr, Subject: "nix-store --realise",
	})
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(result.Stdout)), nil
}

// stopped tells an error that says nothing about the systems.
func stopped(err error) bool {
	var failed *child.Error
	return err != nil && (!errors.As(err, &failed) || failed.Cause != nil)
}

// compare makes sure that what was built is what the map promised.
func (b Builder) compare(nodes []Node, links []string) map[string]error {
	failed := map[string]error{}
	for i, n := range nodes {
		if i >= len(links) {
			failed[n.Name] = fmt.Errorf("building %s: nix-store named no result", n.target())
			continue
		}
		path, err := filepath.EvalSymlinks(links[i])
		if err == nil && path != n.Toplevel {
			err = fmt.Errorf("the result is %s, not %s", path, n.Toplevel)
		}
		if err != nil {
			failed[n.Name] = fmt.Errorf("building %s: %w", n.target(), err)
		}
	}
	return failed
}

// blame finds out, after a joint build failed, which systems are there and
// what Nix said about the others. Nothing is built again: an output path alone
// tells Nix no way to build it.
func (b Builder) blame(ctx context.Context, nodes []Node, joint error) (map[string]error, error) {
	failed := map[string]error{}
	said := paragraphs(words(joint))
	for i, n := range nodes {
		// This also makes the link, of which the joint build made none.
		_, err := b.realise(ctx, fmt.Sprintf("node-%d", i), []string{n.Toplevel}, nil)
		if stopped(err) {
			return nil, err
		}
		if err != nil && n.DrvPath != "" {
			err, stop := b.wordsAbout(ctx, n, said, joint)
			if stop != nil {
				return nil, stop
			}
			failed[n.Name] = err
		} else if err != nil {
			failed[n.Name] = err
		}
	}
	return failed, nil
}

// wordsAbout is an error of what Nix said about the node's own derivations.
// The second result is an error that says nothing about the node.
func (b Builder) wordsAbout(ctx context.Context, n Node, said []string, joint error) (error, error) {
	result, err := b.Runner.Run(ctx, child.Command{
		Name: "nix-store", Args: []string{"--query", "--requisites", n.DrvPath}, Subject: "nix-store --query --requisites",
	})
	if stopped(err) {
		return nil, err
	}
	about := map[string]bool{n.Toplevel: true}
	for _, path := range strings.Fields(string(result.Stdout)) {
		about[path] = true
	}
	var own []string
	for _, p := range said {
		if names(p, about) {
			own = append(own, p)
		}
	}
	if len(own) == 0 {
		own = []string{words(joint)}
	}
	return &child.Error{Subject: "building " + n.target(), ExitCode: 1, Stderr: strings.Join(own, "\n")}, nil
}

// paragraphs splits Nix's standard error into its errors: each begins with
// "error:" at the start of a line and goes on over the indented lines below.
// The last word of nix-store, which lists all that it was asked for, is left out.
func paragraphs(text string) []string {
	var all []string
	inside := false
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "error: build of '"):
			inside = false
		case strings.HasPrefix(line, "error:"):
			all = append(all, line)
			inside = true
		case inside && (strings.HasPrefix(line, " ") || line == ""):
			all[len(all)-1] += "\n" + line
		default:
			inside = false
		}
	}
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// names tells whether the first line of a paragraph has one of the paths in
// quotes, which is how Nix writes them.
func names(paragraph string, paths map[string]bool) bool {
	first, _, _ := strings.Cut(paragraph, "\n")
	for i, part := range strings.Split(first, "'") {
		if i%2 == 1 && paths[strings.TrimSuffix(part, "!out")] {
			return true
		}
	}
	return false
}
