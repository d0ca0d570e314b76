package scenario_test

import (
	"context"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// The scenarios are one story on one rig: each begins where the one before ended.
func TestScenarios(t *testing.T) {
	t.Parallel()
	world, _ := rigworld.Start(t)
	for _, s := range []struct {
		name string
		play func(context.Context, scenario.World) error
	}{
		{"BadInput", scenario.BadInput},
		{"TwoTargets", scenario.TwoTargets},
		{"Unchanged", scenario.Unchanged},
		{"OneDown", scenario.OneDown},
		{"BrokenSystems", scenario.BrokenSystems},
	} {
		t.Run(s.name, func(t *testing.T) {
			if err := s.play(t.Context(), world); err != nil {
				t.Error(err)
			}
		})
	}
}
