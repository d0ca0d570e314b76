package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// planFlags are the flags of plan.
type planFlags struct {
	mapFlags
	buildFlags
	noBuild, dryActivate, noSubstitute, requirePins bool
	out                                             string
}

// buildFlags are the flags of the verbs that build systems.
type buildFlags struct {
	logs         bool
	buildTimeout time.Duration
}

func (f *buildFlags) add(flags *pflag.FlagSet) {
	flags.BoolVarP(&f.logs, "print-build-logs", "L", false, "show builders' output as it comes (as nix)")
	flags.DurationVar(&f.buildTimeout, "build-timeout", flake.BuildLimit, "how long the build of all systems may take")
}

func (f *buildFlags) check() error {
	if f.buildTimeout <= 0 {
		return durationError("build-timeout", f.buildTimeout)
	}
	return nil
}

func newPlan(p Process) *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use:   "plan FLAKE#NODES [flags] [-- NIX ARGS]",
		Short: "Tell what an apply would change on each host; change nothing",
		Long: `Evaluates the map and builds its systems, as apply does, then asks all hosts side by
side what they run: which packages change, what would be sent and what of it the
host's own caches have, whether there is room, what only a reboot would bring, what
is not well now. Nothing is copied to a host and nothing is changed there.

With --out the plan goes to a file, which apply --plan takes: exactly these systems
are deployed then, to hosts that are still as the plan has seen them.

Exit code 0 when every node is planned, 1 when an apply would fail on one: its host
could not be asked, or would refuse.`,
		Example: "  deploy-ssh plan .#nodes --out fleet.plan\n  deploy-ssh apply --plan fleet.plan",
		Args:    refAndNixArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, nixArgs := source(args)
			return f.run(cmd.Context(), p, ref, nixArgs)
		},
	}
	flags := cmd.Flags()
	f.mapFlags.add(flags, "print each node's plan as a JSON line")
	f.addSystems(flags)
	f.buildFlags.add(flags)
	flags.BoolVar(&f.noBuild, "no-build", false, "build nothing: of systems that aren't built only their paths are known")
	flags.BoolVar(&f.dryActivate, "dry-activate", false, "ask systems that are on their hosts already which units they would stop, restart and start (this takes the lock of the host's switch for that moment)")
	flags.BoolVar(&f.noSubstitute, "no-substitute", false, "leave the hosts' own substituters out of it, as apply --no-substitute does")
	flags.BoolVar(&f.requirePins, "require-pins", false, "refuse nodes without a pinned host key that holds, before contacting them")
	flags.StringVar(&f.out, "out", "", "write the plan to `FILE`, for apply --plan")
	return cmd
}

func (f *planFlags) check() error {
	if f.noBuild && f.out != "" {
		return usageError{fmt.Errorf("--out with --no-build: a plan to apply has its systems built")}
	}
	if err := f.buildFlags.check(); err != nil {
		return err
	}
	return f.mapFlags.check()
}

func (f *planFlags) run(ctx context.Context, p Process, ref string, nixArgs []string) error {
	began := time.Now()
	if err := f.check(); err != nil {
		return err
	}
	file, err := f.open(p, ref)
	if err != nil {
		return err
	}
	defer file.discard()
	out := newOutput(p, f.json, f.noProgress, false)
	out.emit(report.Record{Run: &report.Run{Protocol: report.Protocol, Version: Version, Time: began, Source: or(ref, settings.KeyNodes)}})
	m, err := f.ready(ctx, p, out, flake.Request{Ref: ref, Args: nixArgs})
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	var buildErrors map[string]error
	if !f.noBuild {
		if buildErrors, err = f.build(ctx, p, out, m.dir, m.nodes, m.options); err != nil {
			return err
		}
	}
	fleet := deploy.Fleet{Identities: m.identities, RequirePins: f.requirePins, Limits: deploy.DefaultLimits(), Emit: out.emit}
	fleet.Copier.Runner, fleet.Copier.Options, fleet.Copier.NoSubstitute = p.local(), m.options, f.noSubstitute
	all := fleet.Plan(ctx, m.work.Nodes, buildErrors, deploy.PlanOptions{DryActivate: f.dryActivate, NotBuilt: f.noBuild})
	code := planCode(all, ctx.Err() != nil)
	failed := []string{}
	for _, n := range all {
		if n.Verdict != "" && !n.Verdict.Good() {
			failed = append(failed, n.Node)
		}
	}
	out.emit(report.Record{Summary: &report.Summary{Time: time.Now(), ExitCode: code, Interrupted: ctx.Err() != nil, Failed: failed, Seconds: time.Since(began).Seconds()}})
	if file != nil && ctx.Err() == nil {
		plan, err := f.planFile(began, p, ref, nixArgs, m, all)
		if err == nil {
			err = file.keep(plan)
		}
		if err != nil {
			say(p.Stderr, "writing the plan to %s: %v", f.out, err)
			return exitCode(verdict.ExitFailed)
		}
		say(p.Stderr, "the plan is in %s; deploy-ssh apply --plan %s applies it", f.out, f.out)
	}
	if code = out.told(p, code); code != verdict.ExitGood {
		return exitCode(code)
	}
	return nil
}

func planCode(all []report.Planned, interrupted bool) int {
	var verdicts []verdict.Verdict
	for _, n := range all {
		if n.Verdict != "" {
			verdicts = append(verdicts, n.Verdict)
		}
	}
	return verdict.ExitCode(verdicts, interrupted)
}
