package deploy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// A status that was not seen is never one.
func TestCommanded(t *testing.T) {
	for _, tt := range []struct {
		name        string
		status      int
		err         error
		interrupted bool
		want        verdict.Verdict
		reason      string
	}{
		{"exited", 3, nil, false, "", ""},
		{"exited while interrupted", 0, nil, true, "", ""},
		{"the line was lost", 0, &ssh.Error{Kind: ssh.Lost, Doing: "running the command", Words: "Broken pipe"}, false, verdict.Unknown, "Broken pipe"},
		{"took too long", 0, &ssh.Error{Kind: ssh.Lost, Cause: errTooLong}, false, verdict.TimedOut, "within 2s"},
		{"interrupted", 0, &ssh.Error{Kind: ssh.Lost, Cause: errors.New("canceled")}, true, verdict.Unknown, "interrupted"},
		{"no root", 0, &ssh.Error{Kind: ssh.ElevationRefused, Words: "a password is required"}, false, verdict.ElevationRefused, "a password"},
		{"nowhere to write", 0, fmt.Errorf("running the command: %w", errors.New("full")), false, verdict.Unknown, "full"},
	} {
		got := commanded(tt.status, tt.err, tt.interrupted, 2*time.Second)
		if got.Verdict != tt.want || !strings.Contains(got.Reason, tt.reason) {
			t.Errorf("%s: %s (%s), want %s (%s)", tt.name, got.Verdict, got.Reason, tt.want, tt.reason)
		}
		if (got.Status != nil) != (tt.err == nil) || got.Status != nil && *got.Status != tt.status {
			t.Errorf("%s: status %v, want %d only where one was seen", tt.name, got.Status, tt.status)
		}
	}
}
