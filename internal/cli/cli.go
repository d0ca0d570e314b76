// Package cli has the verbs and flags of the program. Hints and exit codes are
// decided here, at the edge; the packages below return values and errors.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/nix"
)

// Version is set when a release is linked.
var Version = "0.1.0-dev"

// Process is what the program has of its surroundings.
type Process struct {
	// Args are the arguments after the program's name.
	Args []string
	// Env is the environment, as from [os.Environ].
	Env []string
	// Dir is the working directory; empty means the process's own.
	Dir string
	// Stdin is read where a flag asks for it; nil is empty.
	Stdin io.Reader
	// Stdout takes results, Stderr everything else.
	Stdout, Stderr io.Writer
}

func (p Process) getenv(name string) string {
	for i := len(p.Env) - 1; i >= 0; i-- {
		if key, value, _ := strings.Cut(p.Env[i], "="); key == name {
			return value
		}
	}
	return ""
}

func (p Process) local() child.Local { return child.Local{Env: p.Env, Dir: p.Dir} }

// Run runs the program and returns its exit code. When ctx ends the run is
// interrupted: what is remote and ours stops, a switch that goes on is left alone.
func Run(ctx context.Context, p Process) int {
	root := newRoot(p)
	root.SetArgs(joinOptions(p.Args))
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var coded exitCode
	switch {
	case err == nil:
		return verdict.ExitGood
	case errors.As(err, &coded):
		return int(coded)
	case ctx.Err() != nil:
		say(p.Stderr, "interrupted")
		return verdict.ExitInterrupted
	}
	say(p.Stderr, "%v", err)
	for _, hint := range hints(cmd, err) {
		say(p.Stderr, "hint: %s", hint)
	}
	return verdict.ExitUsage
}

// joinOptions makes one argument of Nix's two-word --option NAME VALUE, which
// people's fingers know. NAME=VALUE is taken as it is.
func joinOptions(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(out, args[i:]...)
		}
		if args[i] == "--option" && i+2 < len(args) && !strings.Contains(args[i+1], "=") {
			out = append(out, "--option="+args[i+1]+"="+args[i+2])
			i += 2
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// Abandon removes the private files of the runs of this process, for a program
// that has been told twice to end.
func Abandon() { ssh.Abandon() }

// exitCode ends the program without another word.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func newRoot(p Process) *cobra.Command {
	apply := newApply(p)
	root := &cobra.Command{
		Use:   "deploy-ssh FLAKE#NODES [flags] [-- NIX ARGS]",
		Short: "Update NixOS hosts over SSH",
		Long: `deploy-ssh evaluates a flake's node map, builds each node's system, copies its
closure over SSH, switches the host to it, makes the boot entry, and says truly
what came of it. The nodes are deployed one at a time, in list order.`,
		Args:          apply.Args,
		RunE:          apply.RunE,
		Version:       Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().AddFlagSet(apply.Flags())
	root.SetVersionTemplate("deploy-ssh {{.Version}}\n")
	root.SetHelpFunc(help)
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate(), widthOfHelp(p.Stdout)))
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(apply, newPlan(p), newRollback(p), newStatus(p), newExec(p), newReport(p), newCheck(p), newExplain(p), newHostKeys(p), newSchema(p), newVersion(p), newCompletion(p))
	describe(root)
	addCompletions(root, p)
	return root
}

func newVersion(p Process) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(p.Stdout, "deploy-ssh %s\n", Version)
			return err
		},
	}
}

func newSchema(p Process) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the node map", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.Stdout.Write(nix.Schema)
			return err
		},
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

func say(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "deploy-ssh: "+format+"\n", args...)
}
