package rig

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// Start makes a rig for one test, and takes it down after it.
// When the test failed, the journals of all hosts are in its log.
// Where the machine can't have a rig the test is skipped,
// or fails if the environment has RIG=required.
func Start(t testing.TB, config Config) *Rig {
	t.Helper()
	if config.Log == nil {
		config.Log = t.Output()
	}
	r, err := Up(t.Context(), config)
	var needs *NeedsError
	if errors.As(err, &needs) && os.Getenv("RIG") != "required" {
		t.Skipf("%v (go run ./tests/rig/cmd/rig deps installs what is missing)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if t.Failed() {
			for _, h := range r.Hosts() {
				t.Logf("journal of host %s:\n%s", h.Name, h.journal(ctx))
			}
		}
		if err := r.Down(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// journal is the end of the host's journal, or of its console when it is down.
func (h *Host) journal(ctx context.Context) string {
	text, err := h.Sh(ctx, "journalctl --no-pager -o short-monotonic -n 300")
	if err != nil {
		return err.Error() + "\nconsole:\n" + h.Console()
	}
	return text
}
