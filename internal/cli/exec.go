package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// execFlags are the flags of exec.
type execFlags struct {
	mapFlags
	verbose, requirePins, root bool
	parallel                   int
	limit                      time.Duration
	nixArgs                    []string
}

func newExec(p Process) *cobra.Command {
	f := &execFlags{}
	cmd := &cobra.Command{
		Use:   "exec FLAKE#NODES [flags] -- COMMAND [ARG...]",
		Short: "Run a command on nodes",
		Long: `Runs a command on each node's host, as the login user, and prints what it prints with
the node's name in front, each stream on its own. No system is evaluated.

What stands behind -- is the command: a program and its arguments, which no shell
reads on the way. For a shell's line: -- sh -c 'uptime | cut -c1-9'.
Its standard input is empty. When the run is interrupted, takes too long or loses its
line, the host tells the command to end (SIGTERM, SIGKILL 5 seconds later).`,
		Example: "  deploy-ssh exec .#nodes -- uptime\n  deploy-ssh exec .#nodes --on @eu -p 20 --root -- systemctl restart nginx",
		Args:    refAndCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), p, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	f.add(flags, "print each piece of output and each exit status as a JSON line")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "tell of commands that exited 0, too")
	flags.BoolVar(&f.requirePins, "require-pins", false, "refuse nodes without a pinned host key that holds, before contacting them")
	flags.BoolVar(&f.root, "root", false, "run the command as root, by the node's elevate where the login user is another")
	flags.IntVarP(&f.parallel, "parallel", "p", 1, "how many nodes the command runs on at once, `N`")
	flags.DurationVar(&f.limit, "timeout", time.Hour, "how long the command may take on a node; 0 for no limit")
	flags.StringArrayVar(&f.nixArgs, "nix-arg", nil, "an `ARGUMENT` for Nix, since -- has the command here; may be repeated")
	return cmd
}

// refAndCommand takes one flake reference and, behind `--`, a command.
func refAndCommand(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0 || dash == len(args):
		return usageError{errors.New("a command is wanted behind --, as in: deploy-ssh exec .#nodes -- uptime")}
	case dash != 1:
		return usageError{fmt.Errorf("one flake reference is wanted in front of --, not %d: %q", dash, args[:dash])}
	case args[1] == "" || strings.HasPrefix(args[1], "-"):
		return usageError{fmt.Errorf("%q is no program; a command is wanted behind --, as in: deploy-ssh exec .#nodes -- uptime", args[1])}
	}
	nixArgs, err := cmd.Flags().GetStringArray("nix-arg")
	if err != nil {
		return err
	}
	return checkRef(cmd, args[0], nixArgs)
}

func (f *execFlags) check() error {
	if f.parallel < 1 {
		return usageError{fmt.Errorf("--parallel %d: at least 1 is wanted", f.parallel)}
	}
	if f.limit < 0 {
		return usageError{fmt.Errorf("--timeout %v: a duration is wanted, such as 30s, or 0 for none", f.limit)}
	}
	return f.mapFlags.check()
}

func (f *execFlags) run(ctx context.Context, p Process, ref string, command []string) error {
	began := time.Now()
	if err := f.check(); err != nil {
		return err
	}
	out := newOutput(p, f.json, f.noProgress, f.verbose)
	out.emit(report.Record{Run: &report.Run{Protocol: report.Protocol, Version: Version, Time: began, Source: ref}})
	m, err := f.ready(ctx, p, out, flake.Request{Ref: ref, Args: f.nixArgs, SettingsOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	fleet := deploy.Fleet{Identities: m.identities, RequirePins: f.requirePins, Emit: out.emit}
	all := fleet.Exec(ctx, m.work.Nodes, deploy.Command{Args: command, Root: f.root, Limit: f.limit, Parallel: f.parallel})

	summary := &report.Summary{Time: time.Now(), Interrupted: ctx.Err() != nil, Failed: []string{}, Seconds: time.Since(began).Seconds()}
	summary.ExitCode = execCode(all, summary.Interrupted)
	missing := false
	for _, e := range all {
		if !e.Good() {
			summary.Failed = append(summary.Failed, e.Node)
		}
		missing = missing || e.Status != nil && *e.Status == 127
	}
	out.emit(report.Record{Summary: summary})
	if missing && len(command) == 1 && strings.ContainsAny(command[0], " |;&<>$") {
		say(p.Stderr, "hint: %q was taken for the name of a program; for a shell's line: -- sh -c '…'", command[0])
	}
	if out.failed != nil {
		say(p.Stderr, "writing the output: %v (the exit code still tells)", out.failed)
	}
	if summary.ExitCode != verdict.ExitGood {
		return exitCode(summary.ExitCode)
	}
	return nil
}

// execCode is the exit code of commands: an interrupted run is 130; else any that
// failed or could not be run is 1, else any whose end nobody saw is 3, else 0.
func execCode(all []report.Exec, interrupted bool) int {
	code := verdict.ExitGood
	for _, e := range all {
		switch {
		case interrupted:
			return verdict.ExitInterrupted
		case e.Good():
		case e.Verdict == verdict.Unknown && code == verdict.ExitGood:
			code = verdict.ExitUnknown
		case e.Verdict != verdict.Unknown:
			code = verdict.ExitFailed
		}
	}
	return code
}
