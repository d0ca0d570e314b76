package deploy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
)

// Goal is how far a deploy goes. The empty goal is [GoalSwitch].
type Goal string

const (
	// GoalBuild builds the systems and contacts no host.
	GoalBuild Goal = report.GoalBuild
	// GoalPush copies the closures.
	GoalPush Goal = report.GoalPush
	// GoalDryActivate tells what an activation would do.
	GoalDryActivate Goal = report.GoalDryActivate
	// GoalTest activates without a boot entry: a reboot goes back.
	GoalTest Goal = report.GoalTest
	// GoalBoot makes the boot entry without an activation.
	GoalBoot Goal = report.GoalBoot
	// GoalSwitch activates and makes the boot entry.
	GoalSwitch Goal = report.GoalSwitch
)

// Goals are all goals, from the least to the most.
func Goals() []Goal {
	return []Goal{GoalBuild, GoalPush, GoalDryActivate, GoalTest, GoalBoot, GoalSwitch}
}

// Set implements pflag.Value.
func (g *Goal) Set(text string) error {
	if !slices.Contains(Goals(), Goal(text)) {
		return fmt.Errorf("it is one of %s", g.list())
	}
	*g = Goal(text)
	return nil
}

// String implements pflag.Value.
func (g *Goal) String() string { return string(*g) }

// Type implements pflag.Value.
func (g *Goal) Type() string { return "GOAL" }

func (*Goal) list() string {
	var names []string
	for _, g := range Goals() {
		names = append(names, string(g))
	}
	return strings.Join(names, ", ")
}

// activates and boots tell which of the two changes a goal makes.
func (g Goal) activates() bool { return g == GoalTest || g == GoalSwitch }
func (g Goal) boots() bool     { return g == GoalBoot || g == GoalSwitch }

// Covers reports whether a run of this goal that went well has brought a host as far as
// one of the other goal would.
func (g Goal) Covers(other Goal) bool {
	full := func(g Goal) Goal {
		if g == "" {
			return GoalSwitch
		}
		return g
	}
	g, other = full(g), full(other)
	return (g.activates() || !other.activates()) && (g.boots() || !other.boots())
}

// look are the phases that change nothing on the host.
func (d *deployment) look() (connect, probe phase) {
	return phase{report.Connect, d.connect}, phase{report.Probe, d.probe}
}

// work are the steps of a goal that follow the look, in order. Rebooting is one of
// goals that make a boot entry.
func (d *deployment) work() []phase {
	goal := d.fleet.Goal
	phases := []phase{{report.Copy, d.copy}}
	if d.buildsThere() {
		phases = append(phases, phase{report.Build, d.buildThere})
	}
	if goal == GoalDryActivate {
		phases = append(phases, phase{report.DryActivate, d.dryActivate})
	}
	if goal.activates() {
		phases = append(phases, phase{report.Switch, d.activate})
	}
	if goal.boots() {
		phases = append(phases, phase{report.Finalize, d.finalize})
		if d.fleet.Reboot {
			phases = append(phases, phase{report.Reboot, d.reboot})
		}
	}
	return phases
}
