package deploy

import (
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
)

// Only of a goal that leaves a host as wanted, running it and booting it, that is said.
func TestGoalsAreToldApart(t *testing.T) {
	for _, goal := range Goals() {
		if full, told := goal.activates() && goal.boots(), report.Done(goal.String()) == "as wanted"; full != told {
			t.Errorf("--goal %s: a host is as wanted: %v, and told to be: %v", goal, full, told)
		}
	}
}
