package cli

import (
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

func TestExecCode(t *testing.T) {
	exited := func(status int) report.Exec { return report.Exec{Status: &status} }
	without := func(v verdict.Verdict) report.Exec { return report.Exec{Verdict: v} }
	for _, tt := range []struct {
		name        string
		all         []report.Exec
		interrupted bool
		want        int
	}{
		{"all well", []report.Exec{exited(0), exited(0)}, false, 0},
		{"one failed", []report.Exec{exited(0), exited(255)}, false, 1},
		{"one not reached", []report.Exec{without(verdict.Unreachable), exited(0)}, false, 1},
		{"one too long", []report.Exec{exited(0), without(verdict.TimedOut)}, false, 1},
		{"one not seen", []report.Exec{without(verdict.Unknown), exited(0)}, false, 3},
		{"one failed, one not seen", []report.Exec{exited(1), without(verdict.Unknown)}, false, 1},
		{"one not seen, one failed", []report.Exec{without(verdict.Unknown), exited(1)}, false, 1},
		{"interrupted", []report.Exec{exited(0), without(verdict.NotStarted)}, true, 130},
	} {
		if got := execCode(tt.all, tt.interrupted); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
