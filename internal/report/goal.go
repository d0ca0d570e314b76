package report

import "fmt"

// The goals of an apply or a rollback, as [Run.Goal] has them.
const (
	GoalBuild       = "build"
	GoalPush        = "push"
	GoalDryActivate = "dry-activate"
	GoalTest        = "test"
	GoalBoot        = "boot"
	GoalSwitch      = "switch"
)

// goalWords are how a goal is told. What a goal does not bring about is not said of it:
// only a switch leaves a host that both runs and boots what is wanted.
type goalWords struct {
	// doing is what is done with a system, and at what stands before the host.
	doing, at string
	// done is what a node is that went well, and one that did not is not: after a test
	// it is not "activated", for a node whose units failed is that, too.
	done string
}

var goals = map[string]goalWords{
	GoalBuild:       {"the build of", "for", "built"}, // all are built at once, before the first one's turn
	GoalPush:        {"pushing", "to", "pushed"},
	GoalDryActivate: {"dry-activating", "on", "dry-activated"},
	GoalTest:        {"activating", "on", "as asked"},
	GoalBoot:        {"making the boot entry of", "on", "as asked"},
	GoalSwitch:      {"deploying", "to", "as wanted"},
}

// wordsOf are the words of a goal; those of a switch where none is given, as in the records of
// older versions.
func wordsOf(goal string) goalWords {
	if words, ok := goals[goal]; ok {
		return words
	}
	return goals[GoalSwitch]
}

// Done is what the nodes of a run are that went well, by the run's goal, after their number:
// "built", "as wanted".
func Done(goal string) string { return wordsOf(goal).done }

// opening says what is done as a node's turn comes.
func opening(goal string, a Announce) string {
	words, to := wordsOf(goal), login(a.User, a.Host)
	switch {
	case a.Rollback && (goal == GoalSwitch || goal == ""):
		return "going back on " + to
	case a.Rollback:
		return fmt.Sprintf("%s an earlier generation %s %s", words.doing, words.at, to)
	case a.Toplevel == "" && goal == GoalBuild:
		return "no system to build for " + to
	case a.Toplevel == "":
		return "no system to deploy to " + to
	case a.Combined:
		return fmt.Sprintf("%s %s, the system of all nodes, %s %s", words.doing, systemName(a.Toplevel), words.at, to)
	}
	return fmt.Sprintf("%s %s %s %s", words.doing, systemName(a.Toplevel), words.at, to)
}
