package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
)

// completionLimit is how long a press of the tab key waits for Nix at most. A test
// waits longer, since what it finds out is not how busy its machine is.
var completionLimit = 10 * time.Second

// nothing ends a completion without candidates: neither ours nor files.
const nothing = cobra.ShellCompDirectiveNoFileComp

// addCompletions tells the shells of every verb what its words and flags can be.
// Flags are known by what they call their values, so that a new flag is completed
// as its like are. No host is contacted, and an error is no candidate.
func addCompletions(root *cobra.Command, p Process) {
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		c := completer{p: p}
		if cmd.ValidArgsFunction == nil && strings.Contains(cmd.Use, "FLAKE#NODES") {
			cmd.ValidArgsFunction = c.words(strings.Contains(cmd.Use, "[NODE"))
		} else if cmd.ValidArgsFunction == nil && cmd.ValidArgs == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if complete := c.flag(f); complete != nil {
				// The root has the flags of apply: each set is registered on its own.
				_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
			}
		})
	}
}

// completer finds candidates.
type completer struct{ p Process }

// flag is the completion of a flag's value; nil leaves it to the shell, which knows files.
func (c completer) flag(f *pflag.Flag) cobra.CompletionFunc {
	value, _ := pflag.UnquoteUsage(f)
	switch {
	case f.Name == "goal":
		return fixed(goalWords()...)
	case f.Name == "compress":
		return fixed("zstd", "none")
	case f.Name == "strategy":
		return fixed("serial\tone node after the other", "parallel\tseveral nodes at once", "lockstep\tphase by phase")
	case f.Name == "option", f.Name == "max-failures", f.Value.Type() == "duration", f.Value.Type() == "int":
		return cobra.NoFileCompletions
	case strings.HasPrefix(value, "NAME="):
		return c.assignments
	case strings.Contains(value, "@TAG"):
		return c.selectors
	}
	return nil
}

// goalWords are the goals, each with what it adds to the one before.
func goalWords() []string {
	meanings := map[deploy.Goal]string{
		deploy.GoalBuild: "contacts no host", deploy.GoalPush: "copies", deploy.GoalDryActivate: "tells what a switch would do",
		deploy.GoalTest: "activates, no boot entry", deploy.GoalBoot: "boot entry, no activation", deploy.GoalSwitch: "activates and makes the boot entry",
	}
	var words []string
	for _, goal := range deploy.Goals() {
		words = append(words, string(goal)+"\t"+meanings[goal])
	}
	return words
}

func fixed(words ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return beginning(slices.Clone(words), word), nothing | cobra.ShellCompDirectiveKeepOrder
	}
}

// words completes the flake reference, and the nodes behind it where the verb takes some.
func (c completer) words(nodes bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		// Cobra itself appends a -- to what it parses, so that the flag set tells nothing.
		if given := c.p.Args; slices.Contains(given[:max(0, len(given)-1)], "--") {
			return nil, cobra.ShellCompDirectiveDefault // Nix's own
		}
		if len(args) == 0 {
			return c.references(cmd.Context(), word)
		}
		if !nodes {
			return nil, nothing
		}
		var names []string
		for _, n := range c.nodes(cmd, args) {
			if !slices.Contains(args[1:], n.Name) {
				names = append(names, n.Name+"\t"+or(n.Host, n.Name))
			}
		}
		return beginning(names, word), nothing | cobra.ShellCompDirectiveKeepOrder
	}
}

// beginning are the candidates that go on from the word at hand.
func beginning(candidates []string, word string) []string {
	return slices.DeleteFunc(candidates, func(c string) bool { return !strings.HasPrefix(c, word) })
}

// selectors completes the last name or tag of a list such as web,@eu&@data.
func (c completer) selectors(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	given := ""
	if i := strings.LastIndexAny(word, ",&"); i >= 0 {
		given = word[:i+1]
	}
	var candidates []string
	tagged := map[string][]string{}
	for _, n := range c.nodes(cmd, args) {
		candidates = append(candidates, given+n.Name+"\t"+or(n.Host, n.Name))
		for _, tag := range n.Tags {
			tagged[tag] = append(tagged[tag], n.Name)
		}
	}
	var tags []string
	for tag, names := range tagged {
		tags = append(tags, given+"@"+tag+"\t"+strings.Join(names, ", "))
	}
	slices.Sort(tags)
	return beginning(append(candidates, tags...), word), nothing | cobra.ShellCompDirectiveKeepOrder
}

// assignments completes the name of NAME=PATH; the path is the shell's.
func (c completer) assignments(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(word, "=") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, n := range c.nodes(cmd, args) {
		names = append(names, n.Name+"=\t"+or(n.Host, n.Name))
	}
	return beginning(names, word), nothing | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
}

// nodes are the nodes of the map that a command line names or will name, evaluated without their
// systems; none when the map can't be had in time.
func (c completer) nodes(cmd *cobra.Command, args []string) []flake.Node {
	// Flags may stand before the map, which nearly everybody calls so.
	args = append(slices.Clone(args), ".#nodes")
	r := flake.Request{Ref: args[0], SettingsOnly: true}
	r.Impure, _ = cmd.Flags().GetBool("impure")
	items, _ := cmd.Flags().GetStringArray("option")
	for _, item := range items {
		if name, value, ok := cut(item); ok {
			r.Options = append(r.Options, [2]string{name, value})
		}
	}
	// What an earlier press of the key, or a deploy, has evaluated is there already.
	flags := mapFlags{}
	flags.noEvalCache, _ = cmd.Flags().GetBool("no-eval-cache")
	m, err := flake.Evaluator{Runner: c.p.local(), Limit: completionLimit, Keep: flags.keep(c.p)}.Evaluate(cmd.Context(), r)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil
	}
	return m.Nodes
}

// references completes a flake reference: its attribute by asking Nix, which has a
// completion of its own; a directory by the shell.
func (c completer) references(ctx context.Context, word string) ([]string, cobra.ShellCompDirective) {
	ask := word
	if !strings.Contains(word, "#") {
		_, err := os.Stat(filepath.Join(c.p.Dir, "flake.nix"))
		switch {
		case strings.Contains(word, "/"), word == "..", word == "~":
			return nil, cobra.ShellCompDirectiveFilterDirs
		case strings.Trim(word, ".") != "" || err != nil:
			// It may be a verb's beginning, which directories would take the place of.
			return nil, nothing
		}
		ask = ".#"
	}
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	args := []string{"--extra-experimental-features", "nix-command flakes", "eval", ask}
	result, err := c.p.local().Run(ctx, child.Command{
		Name: "nix", Args: args, Env: []string{fmt.Sprintf("NIX_GET_COMPLETIONS=%d", len(args))},
	})
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, nothing
	}
	return beginning(attributes(string(result.Stdout), ask == word), word), nothing
}

// attributes are the candidates of Nix's answer, a line each below the kind of them.
// Where the person has not begun with the attribute, nodes stands for all.
func attributes(answer string, begun bool) []string {
	kind, lines, _ := strings.Cut(answer, "\n")
	if kind != "attrs" {
		return nil
	}
	var found []string
	for line := range strings.Lines(lines) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); name != "" {
			found = append(found, name)
		}
	}
	if !begun && slices.Contains(found, ".#nodes") {
		return []string{".#nodes"}
	}
	return found
}

// newCompletion prints the scripts by which shells ask the program for candidates.
func newCompletion(p Process) *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print the script by which a shell completes command lines",
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(cmd.ValidArgs, args[0]) {
				return usageError{fmt.Errorf("one shell is wanted: %s", strings.Join(cmd.ValidArgs, ", "))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "zsh":
				return cmd.Root().GenZshCompletion(p.Stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(p.Stdout, true)
			}
			return bashCompletion(cmd.Root(), p.Stdout)
		},
	}
}

// bashCompletion is cobra's script for bash with two changes. Bash parts words at
// the @ of a tag, as it does to complete host names; it is told not to. And
// candidates are compared with the word at hand after they were quoted by printf %q,
// which quotes the comma of a list, as nobody does: that quote is taken away.
func bashCompletion(root *cobra.Command, w io.Writer) error {
	var script bytes.Buffer
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return err
	}
	text := strings.NewReplacer(
		`        # Only consider the completions that match
        [[ `, `        comp=${comp//\\,/,}
        # Only consider the completions that match
        [[ `,
		`COMPREPLY[0]=$(printf "%q" "${COMPREPLY[0]%%$tab*}")`, `COMPREPLY[0]=$(printf "%q" "${COMPREPLY[0]%%$tab*}")
        COMPREPLY[0]=${COMPREPLY[0]//\\,/,}`,
	).Replace(script.String())
	_, err := io.WriteString(w, text+"\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//@/}\n")
	return err
}
