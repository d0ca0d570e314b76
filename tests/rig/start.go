package rig

import (
	"context"
	"os"
	"testing"
)

// Require skips a test where the machine can't have a rig,
// or fails it if the environment has RIG=required.
func Require(t testing.TB) {
	t.Helper()
	err := Needs()
	if err == nil {
		return
	}
	if os.Getenv("RIG") == "required" {
		t.Fatal(err)
	}
	t.Skipf("%v (go run ./tests/rig/cmd/rig deps installs what is missing)", err)
}

// Start makes a rig for one test, as [Require] says, and takes it down after it.
// When the test failed, the journals of all hosts are in its log.
func Start(t testing.TB, config Config) *Rig {
	t.Helper()
	Require(t)
	if config.Log == nil {
		config.Log = t.Output()
	}
	r, err := Up(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
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

// journal is the end of the host's journal without sshd's debug lines,
// or of its console when it is down.
func (h *Host) journal(ctx context.Context) string {
	text, err := h.Sh(ctx, "journalctl --no-pager -p info -o short-monotonic -n 300")
	if err != nil {
		return err.Error() + "\nconsole:\n" + h.Console()
	}
	return text
}
