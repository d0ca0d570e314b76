package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The lists stand in one order in every run, so that two runs can be compared.
func TestMediansInOrder(t *testing.T) {
	const ms = time.Millisecond
	m := medians{
		"deploy-ssh, unchanged":               {100 * ms: {seconds: 1, phases: "probe 0.9"}, 0: {seconds: 0.2, phases: "probe 0.1"}, 50 * ms: {seconds: 0.6, phases: "probe 0.5"}},
		"nixos-rebuild's commands, unchanged": {100 * ms: {seconds: 2}, 0: {seconds: 0.3}},
		"deploy-ssh, one path changed":        {100 * ms: {seconds: 4.2, phases: "copy 2.00"}, 0: {seconds: 0.2}},
	}
	var out strings.Builder
	m.print(&out)
	want := `
Round trips, as the slope of the seconds over the link's round trip:
- deploy-ssh, one path changed: 40.0
- deploy-ssh, unchanged: 8.0
- nixos-rebuild's commands, unchanged: 17.0

Seconds by phase:
- deploy-ssh, one path changed, 100ms: copy 2.00
- deploy-ssh, unchanged, 0s: probe 0.1
- deploy-ssh, unchanged, 50ms: probe 0.5
- deploy-ssh, unchanged, 100ms: probe 0.9
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
