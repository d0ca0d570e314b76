package scenario_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
)

// The line is cut in the middle of the activation, and the host can't be reached
// for a while: the switch goes on, and its true result and whole log come back.
func TestLineCutDuringSwitch(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	for _, tt := range []struct {
		name, flags string
		attribute   string
		away        time.Duration
		want        verdict.Verdict
		code        int
	}{
		{name: "comes back", attribute: "slow", away: 4 * time.Second, want: verdict.Switched},
		{name: "stays away", attribute: "activate-slow", flags: "--reconnect-timeout 2s --connect-timeout 1s", away: 20 * time.Second, want: verdict.Unknown, code: 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			// An earlier run's log would pass for this one's.
			since, err := web1.Sh(ctx, "rm -rf /run/deploy-ssh; journalctl --sync; date +%s.%N")
			if err != nil {
				t.Fatal(err)
			}
			relay, err := r.Relay(ctx, web1, 2201, rig.LinkSpec{})
			if err != nil {
				t.Fatal(err)
			}
			defer relay.Close()
			env := fmt.Sprintf(`DEPLOY_SSH_NODES='{"nodes":{"web1":{"host":"%s","options":["Port=%d"]}}}'`, relay.Addr, relay.Port)
			cut := make(chan error, 1)
			go func() {
				// The switch is under way once activate speaks.
				_, err := web1.Sh(ctx, "for i in $(seq 200); do grep -qs 'takes its time: 2' /run/deploy-ssh/*/test.log && exit 0; sleep 0.1; done; exit 1")
				if err == nil {
					relay.Cut(true)
					time.Sleep(tt.away)
					err = relay.Mend(ctx)
				}
				cut <- err
			}()
			got, err := w.Result(ctx, tt.attribute, env, "web1", "--settle 0s", tt.flags)
			if cutErr := <-cut; cutErr != nil {
				t.Fatal(cutErr)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict != tt.want || got.Code != tt.code {
				t.Errorf("%s (%s), exit code %d; want %s, %d", got.Verdict, got.Reason, got.Code, tt.want, tt.code)
			}
			n, err := web1.Sh(ctx, "journalctl --sync; journalctl -t nixos --since @"+strings.TrimSpace(since)+" -o cat | grep -c '^switching to system configuration '; true")
			if err != nil || strings.TrimSpace(n) != "1" {
				t.Errorf("the host was switched %q times, want once (%v)", n, err)
			}
			if tt.want == verdict.Unknown {
				// Later, the host tells.
				out, err := w.Deployer.Run(ctx, "cd "+w.Flake+" && "+w.Program+" status .#"+tt.attribute)
				if err != nil || !strings.Contains(out.Stdout, "test: ended with 0") || !strings.Contains(out.Stdout, "boots another system") {
					t.Errorf("status does not tell how the switch ended: %v\n%s%s", err, out.Stdout, out.Stderr)
				}
			}
			if tt.want == verdict.Switched {
				log := strings.Join(got.HostLines, "\n")
				for i := 1; i <= 8; i++ {
					if line := fmt.Sprintf("activation takes its time: %d of 8", i); strings.Count(log, line) != 1 {
						t.Errorf("the log has %q %d times, want once:\n%s", line, strings.Count(log, line), log)
					}
				}
			}
		})
	}
}

// What goes over the line is compressed: 20 MiB of zeros cost little.
func TestCopyIsCompressed(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	ctx := t.Context()
	relay, err := r.Relay(ctx, r.Host("web1"), 2201, rig.LinkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	env := fmt.Sprintf(`DEPLOY_SSH_NODES='{"nodes":{"web1":{"host":"%s","options":["Port=%d"]}}}'`, relay.Addr, relay.Port)
	got, err := w.Result(ctx, "big", env, "web1", "--settle 0s")
	if err != nil {
		t.Fatal(err)
	}
	if got.Verdict != verdict.Switched {
		t.Fatalf("%s: %s", got.Verdict, got.Reason)
	}
	// One for everything, and one fresh login that proves that somebody can get in.
	if relay.Connections() != 2 {
		t.Errorf("the deploy made %d connections, want 2", relay.Connections())
	}
	if relay.Sent() > 1<<20 {
		t.Errorf("%d bytes were sent for a closure with 20 MiB of zeros, want less than 1 MiB", relay.Sent())
	}
	t.Logf("%d bytes sent, %d received", relay.Sent(), relay.Received())
}
