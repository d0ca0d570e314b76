package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/rollout"
)

// rolloutFlags are the flags of how many nodes go at once and when no more are begun.
type rolloutFlags struct {
	policy rollout.Policy
	given  *pflag.FlagSet
}

func (f *rolloutFlags) add(flags *pflag.FlagSet) {
	f.given = flags
	flags.IntVarP(&f.policy.Parallel, "parallel", "p", 1, "how many nodes are deployed at once, `N`")
	flags.Var(&f.policy.MaxFailures, "max-failures", "how many nodes, or which part of all, may fail until no more are begun (default: all)")
	flags.IntVar(&f.policy.Canary, "canary", 0, "deploy the first `N` nodes, and the rest only when all of them went well")
	flags.IntVar(&f.policy.Batch, "batch", 0, "deploy `N` nodes, and the next ones when these have ended")
	flags.DurationVar(&f.policy.Pause, "pause", 0, "how long to wait after the canaries and between batches, without either between nodes")
	flags.Var(&f.policy.Strategy, "strategy", "serial, parallel, or lockstep: every node finishes a phase before any starts the next (default serial; with --parallel, parallel)")
}

// check refuses values that make no sense, or none together.
func (f *rolloutFlags) check(goal deploy.Goal) error {
	for _, n := range []struct {
		flag  string
		value int
	}{{"parallel", f.policy.Parallel}, {"canary", f.policy.Canary}, {"batch", f.policy.Batch}} {
		if f.given.Changed(n.flag) && n.value < 1 {
			return usageError{fmt.Errorf("--%s %d: at least 1 is wanted", n.flag, n.value)}
		}
	}
	if f.given.Changed("pause") && f.policy.Pause <= 0 {
		return durationError("pause", f.policy.Pause)
	}
	if goal == deploy.GoalBuild {
		for _, flag := range []string{"max-failures", "canary", "batch", "pause", "strategy"} {
			if f.given.Changed(flag) {
				return usageError{fmt.Errorf("--%s with --goal build: all systems are built at once, and no host is contacted", flag)}
			}
		}
	}
	if err := f.policy.Check(); err != nil {
		return usageError{err}
	}
	return nil
}
