package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/history"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// switchFlags are the flags of the verbs that switch hosts.
type switchFlags struct {
	reports                         reportFlags
	verbose, requirePins            bool
	limits                          deploy.Limits
	goal                            deploy.Goal
	reboot, noCheck, acceptDegraded bool
	confirm                         time.Duration
	rollout                         rolloutFlags
}

func (f *switchFlags) add(flags *pflag.FlagSet) {
	f.limits = deploy.DefaultLimits()
	f.goal = deploy.GoalSwitch
	f.reports.add(flags)
	flags.Var(&f.goal, "goal", "how far to go: build, push, dry-activate, test, boot or switch")
	flags.BoolVar(&f.reboot, "reboot", false, "reboot each host after its boot entry was made, and wait for it")
	flags.DurationVar(&f.confirm, "confirm", 0, "let a host go back to its old system by itself when no fresh login succeeds for so long after the activation (default: never)")
	flags.BoolVar(&f.noCheck, "no-check", false, "skip the hosts' pre-switch checks and inhibitors, and the look at free space")
	flags.BoolVar(&f.acceptDegraded, "accept-degraded", false, "make the boot entry although units have failed")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show how long each phase took")
	flags.BoolVar(&f.requirePins, "require-pins", false, "refuse nodes without a pinned host key that holds, before contacting them")
	flags.IntVar(&f.limits.LockAttempts, "lock-attempts", f.limits.LockAttempts, "how often a held lock of the host's switch is tried")
	flags.DurationVar(&f.limits.LockInterval, "lock-interval", f.limits.LockInterval, "how long to wait between these tries")
	flags.DurationVar(&f.limits.Settle, "settle", f.limits.Settle, "how long after the activation failed units are looked for again")
	flags.DurationVar(&f.limits.Switch, "switch-timeout", 0, "run time limit of the activation (default: none; in a container "+deploy.ContainerSwitchLimit.String()+")")
	flags.DurationVar(&f.limits.Finalize, "boot-timeout", f.limits.Finalize, "how long the making of the boot entry is waited for")
	flags.DurationVar(&f.limits.Reboot, "reboot-timeout", f.limits.Reboot, "how long a host may take to answer again after a reboot")
	flags.DurationVar(&f.limits.ProbeAge, "probe-age", f.limits.ProbeAge, "how old a look at a host may be when something is first written there")
	f.rollout.add(flags)
	flags.DurationVar(&f.limits.Reconnect, "reconnect-timeout", f.limits.Reconnect, "how long a connection lost during a switch is tried again")
}

// check refuses values that make no sense together, before anything is started.
func (f *switchFlags) check() error {
	if err := f.reports.check(); err != nil {
		return err
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		zero  bool
	}{
		{"lock-interval", f.limits.LockInterval, false},
		{"settle", f.limits.Settle, true},
		{"switch-timeout", f.limits.Switch, true},
		{"boot-timeout", f.limits.Finalize, false},
		{"reconnect-timeout", f.limits.Reconnect, false},
		{"reboot-timeout", f.limits.Reboot, false},
		{"confirm", f.confirm, true},
		{"probe-age", f.limits.ProbeAge, false},
	} {
		if d.value < 0 || d.value == 0 && !d.zero {
			return durationError(d.flag, d.value)
		}
	}
	switch {
	case f.reboot && f.goal != deploy.GoalBoot && f.goal != deploy.GoalSwitch:
		return usageError{fmt.Errorf("--reboot with --goal %s: only boot and switch make the boot entry that a reboot would start", f.goal)}
	case f.confirm > 0 && f.goal != deploy.GoalTest && f.goal != deploy.GoalSwitch:
		return usageError{fmt.Errorf("--confirm with --goal %s: only test and switch activate anything", f.goal)}
	case f.limits.LockAttempts < 1:
		return usageError{fmt.Errorf("--lock-attempts %d: at least 1 is wanted", f.limits.LockAttempts)}
	}
	return f.rollout.check(f.goal)
}

func durationError(flag string, value time.Duration) error {
	return usageError{fmt.Errorf("--%s %v: a duration above zero is wanted, such as 30s", flag, value)}
}

// fleet is what the flags make of a fleet.
func (f *switchFlags) fleet(identities map[string]*ssh.Identity, out *output) *deploy.Fleet {
	return &deploy.Fleet{
		Identities:     identities,
		RequirePins:    f.requirePins,
		Limits:         f.limits,
		Goal:           f.goal,
		Reboot:         f.reboot,
		Confirm:        f.confirm,
		NoCheck:        f.noCheck,
		AcceptDegraded: f.acceptDegraded,
		Rollout:        f.rollout.policy,
		Emit:           out.emit,
	}
}

// begin opens the run's records; dir is where ref means its flake. The caller must
// close the output.
func (f *switchFlags) begin(p Process, out *output, m *mapFlags, verb, ref, dir string, nixArgs []string, began time.Time) {
	there := p
	there.Dir = dir
	f.reports.start(p, out, m, history.Head{Verb: verb, Map: mapSum(there, ref, nixArgs, m.combined), Goal: string(f.goal), Reboot: f.reboot, Time: began})
	out.emit(report.Record{Run: &report.Run{Protocol: report.Protocol, Version: Version, Time: began, Source: or(ref, settings.KeyNodes), Goal: string(f.goal)}})
}

// finish closes the run with its summary and its exit code.
func finish(ctx context.Context, p Process, out *output, results []report.Result, began time.Time) error {
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

func summarize(results []report.Result, interrupted bool, took time.Duration) *report.Summary {
	s := &report.Summary{Time: time.Now(), Interrupted: interrupted, Failed: []string{}, Seconds: took.Seconds()}
	var verdicts []verdict.Verdict
	for _, r := range results {
		verdicts = append(verdicts, r.Verdict)
		if !r.Verdict.Good() {
			s.Failed = append(s.Failed, r.Node)
		}
	}
	s.FailedBy = report.Alike(results)
	s.ExitCode = verdict.ExitCode(verdicts, interrupted)
	return s
}
