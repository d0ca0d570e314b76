package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// statusFlags are the flags of status.
type statusFlags struct {
	mapFlags
	noEval, verbose bool
}

func newStatus(p Process) *cobra.Command {
	f := &statusFlags{}
	cmd := &cobra.Command{
		Use:   "status FLAKE#NODES [flags] [-- NIX ARGS]",
		Short: "Tell what hosts run and boot, and how it differs; change nothing",
		Long: `Asks each host what it runs, boots and has left to do, whether a reboot is pending,
which units have failed, who holds the lock of its switch, how earlier deploys ended,
and which generations there are. What is told was seen now: nothing is remembered
from an earlier time, so that a host that can't be reached has no status.

Exit code 0 when every host is as wanted, 5 when one drifts, 1 when one could not be
asked.`,
		Args: refAndNixArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, nixArgs := source(args)
			return f.run(cmd.Context(), p, ref, nixArgs)
		},
	}
	f.add(cmd.Flags(), "print each status as a JSON line")
	f.addSystems(cmd.Flags())
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "tell of every node its systems and generations, not only of those that differ")
	cmd.Flags().BoolVar(&f.noEval, "no-eval", false, "evaluate no system: tell what hosts are, not how they differ")
	return cmd
}

func (f *statusFlags) run(ctx context.Context, p Process, ref string, nixArgs []string) error {
	began := time.Now()
	if err := f.check(); err != nil {
		return err
	}
	out := newOutput(p, f.json, f.noProgress, f.verbose)
	out.emit(report.Record{Run: &report.Run{Protocol: report.Protocol, Version: Version, Time: began, Source: or(ref, settings.KeyNodes)}})
	m, err := f.ready(ctx, p, out, flake.Request{Ref: ref, Args: nixArgs, SettingsOnly: f.noEval})
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	fleet := deploy.Fleet{Identities: m.identities, Emit: out.emit}
	all := fleet.Status(ctx, m.work.Nodes)
	code := statusCode(all, ctx.Err() != nil)
	failed := []string{}
	for _, s := range all {
		if s.Verdict != "" || len(s.Drift) > 0 {
			failed = append(failed, s.Node)
		}
	}
	out.emit(report.Record{Summary: &report.Summary{Time: time.Now(), ExitCode: code, Interrupted: ctx.Err() != nil, Failed: failed, Seconds: time.Since(began).Seconds()}})
	if code = out.told(p, code); code != verdict.ExitGood {
		return exitCode(code)
	}
	return nil
}

func statusCode(all []report.Status, interrupted bool) int {
	switch {
	case interrupted:
		return verdict.ExitInterrupted
	case slices.ContainsFunc(all, func(s report.Status) bool { return s.Verdict != "" }):
		return verdict.ExitFailed
	case slices.ContainsFunc(all, func(s report.Status) bool { return len(s.Drift) > 0 }):
		return verdict.ExitDrift
	}
	return verdict.ExitGood
}
