package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// applyFlags are the flags of the main verb.
type applyFlags struct {
	mapFlags
	verbose, logs, requirePins      bool
	buildTimeout, copyTimeout       time.Duration
	limits                          deploy.Limits
	goal                            deploy.Goal
	reboot, noCheck, acceptDegraded bool
	confirm                         time.Duration
}

func (f *applyFlags) add(flags *pflag.FlagSet) {
	f.mapFlags.add(flags, "print the records of the run as JSON lines instead of the table")
	f.limits = deploy.DefaultLimits()
	f.goal = deploy.GoalSwitch
	flags.Var(&f.goal, "goal", "how far to go: build, push, dry-activate, test, boot or switch")
	flags.BoolVar(&f.reboot, "reboot", false, "reboot each host after its boot entry was made, and wait for it")
	flags.DurationVar(&f.confirm, "confirm", 0, "let a host go back to its old system by itself when no fresh login succeeds for so long after the activation (default: never)")
	flags.BoolVar(&f.noCheck, "no-check", false, "skip the hosts' pre-switch checks and inhibitors")
	flags.BoolVar(&f.acceptDegraded, "accept-degraded", false, "make the boot entry although units have failed")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show how long each phase took")
	flags.BoolVarP(&f.logs, "print-build-logs", "L", false, "show builders' output as it comes (as nix)")
	flags.BoolVar(&f.requirePins, "require-pins", false, "refuse nodes without a pinned host key that holds, before contacting them")
	flags.DurationVar(&f.buildTimeout, "build-timeout", flake.BuildLimit, "how long the build of all systems may take")
	flags.DurationVar(&f.copyTimeout, "copy-timeout", closure.DefaultTimeout, "how long the copy of one closure may take")
	flags.IntVar(&f.limits.LockAttempts, "lock-attempts", f.limits.LockAttempts, "how often a held lock of the host's switch is tried")
	flags.DurationVar(&f.limits.LockInterval, "lock-interval", f.limits.LockInterval, "how long to wait between these tries")
	flags.DurationVar(&f.limits.Settle, "settle", f.limits.Settle, "how long after the activation failed units are looked for again")
	flags.DurationVar(&f.limits.Switch, "switch-timeout", 0, "run time limit of the activation (default: none; in a container "+deploy.ContainerSwitchLimit.String()+")")
	flags.DurationVar(&f.limits.Finalize, "boot-timeout", f.limits.Finalize, "how long the making of the boot entry is waited for")
	flags.DurationVar(&f.limits.Reboot, "reboot-timeout", f.limits.Reboot, "how long a host may take to answer again after a reboot")
	flags.DurationVar(&f.limits.Reconnect, "reconnect-timeout", f.limits.Reconnect, "how long a connection lost during a switch is tried again")
}

// check refuses values that make no sense together, before anything is started.
func (f *applyFlags) check() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
		zero  bool
	}{
		{"build-timeout", f.buildTimeout, false},
		{"copy-timeout", f.copyTimeout, false},
		{"lock-interval", f.limits.LockInterval, false},
		{"settle", f.limits.Settle, true},
		{"switch-timeout", f.limits.Switch, true},
		{"boot-timeout", f.limits.Finalize, false},
		{"reconnect-timeout", f.limits.Reconnect, false},
		{"reboot-timeout", f.limits.Reboot, false},
		{"confirm", f.confirm, true},
	} {
		if d.value < 0 || d.value == 0 && !d.zero {
			return usageError{fmt.Errorf("--%s %v: a duration above zero is wanted, such as 30s", d.flag, d.value)}
		}
	}
	switch {
	case f.reboot && f.goal != deploy.GoalBoot && f.goal != deploy.GoalSwitch:
		return usageError{fmt.Errorf("--reboot with --goal %s: only boot and switch make the boot entry that a reboot would start", f.goal)}
	case f.confirm > 0 && f.goal != deploy.GoalTest && f.goal != deploy.GoalSwitch:
		return usageError{fmt.Errorf("--confirm with --goal %s: only test and switch activate anything", f.goal)}
	}
	if err := f.mapFlags.check(); err != nil {
		return err
	}
	if f.limits.LockAttempts < 1 {
		return usageError{fmt.Errorf("--lock-attempts %d: at least 1 is wanted", f.limits.LockAttempts)}
	}
	return nil
}

func newApply(p Process) *cobra.Command {
	f := &applyFlags{}
	cmd := &cobra.Command{
		Use:   "apply FLAKE#NODES [flags] [-- NIX ARGS]",
		Short: "Deploy the nodes of a map, one at a time, in list order (the default verb)",
		Args:  refAndNixArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), p, args[0], args[1:])
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// run is a whole deploy: evaluate, plan, build, deploy, summary.
func (f *applyFlags) run(ctx context.Context, p Process, ref string, nixArgs []string) error {
	began := time.Now()
	if err := f.check(); err != nil {
		return err
	}
	out := newOutput(f, p)
	out.emit(report.Record{Run: &report.Run{Protocol: report.Protocol, Version: Version, Time: began, Source: ref}})

	m, err := f.load(ctx, p, out, flake.Request{Ref: ref, Args: nixArgs})
	if err != nil {
		return err
	}
	dir, err := ssh.NewRunDir(p.getenv)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	identities, err := f.identities.prepare(ctx, p, dir, m.work.Nodes, m.clientConfig)
	if err != nil {
		return err
	}
	buildErrors, err := f.build(ctx, p, out, dir, m.nodes, m.options)
	if err != nil {
		return err
	}

	fleet := deploy.Fleet{
		Identities:     identities,
		RequirePins:    f.requirePins,
		Copier:         closure.Copier{Runner: p.local(), Options: m.options, Timeout: f.copyTimeout},
		Limits:         f.limits,
		Goal:           f.goal,
		Reboot:         f.reboot,
		Confirm:        f.confirm,
		NoCheck:        f.noCheck,
		AcceptDegraded: f.acceptDegraded,
		Emit:           out.emit,
	}
	results := fleet.Run(ctx, m.work.Nodes, buildErrors)

	summary := summarize(results, ctx.Err() != nil, time.Since(began))
	out.emit(report.Record{Summary: summary})
	if out.failed != nil {
		say(p.Stderr, "writing the results: %v (the exit code still tells)", out.failed)
	}
	if summary.ExitCode != verdict.ExitGood {
		return exitCode(summary.ExitCode)
	}
	return nil
}

// build builds what isn't there. The links in the run's directory keep the
// systems from being collected until the run ends.
func (f *applyFlags) build(ctx context.Context, p Process, out *output, dir *ssh.RunDir, nodes []flake.Node, options [][2]string) (map[string]error, error) {
	began := time.Now()
	roots := filepath.Join(dir.Path, "roots")
	if err := os.Mkdir(roots, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for gc roots: %w", err)
	}
	progress := out.lines(report.Build)
	failed, err := flake.Builder{
		Runner: p.local(), Roots: roots, Limit: f.buildTimeout, Options: options, Logs: f.logs, Stderr: progress,
	}.Build(ctx, nodes)
	progress.Flush()
	if err != nil {
		return nil, err
	}
	out.emit(report.Record{Phase: &report.Phase{
		Time: time.Now(), Name: report.Build, OK: true, Seconds: time.Since(began).Seconds(),
	}})
	return failed, nil
}

func summarize(results []report.Result, interrupted bool, took time.Duration) *report.Summary {
	s := &report.Summary{Time: time.Now(), Interrupted: interrupted, Failed: []string{}, Seconds: took.Seconds()}
	var verdicts []verdict.Verdict
	for _, r := range results {
		verdicts = append(verdicts, r.Verdict)
		if !r.Verdict.Good() {
			s.Failed = append(s.Failed, r.Node)
		}
	}
	s.ExitCode = verdict.ExitCode(verdicts, interrupted)
	return s
}
