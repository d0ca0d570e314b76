package main

import (
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"list", 0, "BadInput\nTwoTargets\nUnchanged\nPins\nHostKeys\nOneDown\nBrokenSystems\nRecovery\nVerdicts\nElevation\n", ""},
		{"--help", 0, usage, ""},
		{"", 2, "", "usage:"},
		{"run", 2, "", "usage:"},
		{"run TwoTargets", 2, "", "usage:"},
		{"run TwoTarget --world /dev/null", 2, "", `no scenario "TwoTarget"`},
		{"run TwoTargets --world /nonexistent", 2, "", "/nonexistent"},
		{"run TwoTargets --world /dev/null", 2, "", "/dev/null: EOF"},
		{"run TwoTargets --wrld /dev/null", 2, "", "--wrld"},
	} {
		var stdout, stderr strings.Builder
		code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr)
		if code != test.code || stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) {
			t.Errorf("scenario %s: exit code %d\n%s%s", test.args, code, stdout.String(), stderr.String())
		}
	}
}
