package scenario_test

import (
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/bulk"
)

// told reports whether the progress of the copy had a line with these words.
func (o outcome) told(words string) bool {
	for _, r := range o.records {
		if r.Progress != nil && r.Progress.Phase == report.Copy && strings.Contains(r.Progress.Text, words) {
			return true
		}
	}
	return false
}

// A line that freezes in silence leaves the fetch alone on the host, with the locks of
// its paths. It ends by itself, so that the copy is taken up again: by the same run, and
// by the next one when the first has died.
func TestCopyFrozen(t *testing.T) {
	t.Parallel()
	w := copyWorld(t, "trixie")
	w.bulk(t, bulk.Spec{Name: "bulk", Paths: 60, MiB: 30})
	relay, err := w.rig.Relay(t.Context(), w.web1, 22, rig.LinkSpec{BytesPerSecond: 3_000_000})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	freezeAfter := func(bytes int64) (frozen chan bool) {
		from := relay.Sent()
		frozen = make(chan bool)
		go func() {
			defer close(frozen)
			for deadline := time.Now().Add(time.Minute); relay.Sent()-from < bytes && time.Now().Before(deadline); {
				time.Sleep(5 * time.Millisecond)
			}
			relay.Freeze()
		}()
		return frozen
	}

	// The first run dies with its line, and nobody tells the host.
	frozen := freezeAfter(2_000_000)
	died := make(chan outcome, 1)
	go func() { died <- w.deploy(t, "pushed", relayed(relay), "--goal push --keepalive-timeout 8s") }()
	<-frozen
	w.sh(t, w.rig.Deployer, "pkill -KILL -x deploy-ssh; pkill -KILL -x ssh; true")
	<-died
	if left := w.sh(t, w.web1, "pgrep -c -x nix-store; true"); strings.TrimSpace(left) == "0" {
		t.Error("the first run's fetch has ended before the next run: there is nothing to see")
	}
	// The second one is frozen too, and goes on over a new connection.
	frozen = freezeAfter(2_500_000)
	o := w.deploy(t, "pushed", relayed(relay), "--goal push --keepalive-timeout 8s")
	<-frozen
	o.want(t, "web1", verdict.Staged)
	if c := o.byCache(t); c.Tries != 2 || c.Missing >= 61 || c.FromHere+c.FromCaches != c.Missing {
		t.Errorf("counted %+v, want two tries, and less than all 61 paths", c)
	}
	if !o.told("trying again") {
		t.Errorf("the progress doesn't say that it tries again:\n%s", o.Stdout)
	}
	if left := w.sh(t, w.web1, "pgrep -x nix-store; ls -d /run/deploy-ssh-copy.* 2>/dev/null; true"); left != "" {
		t.Errorf("left on the host: %q", left)
	}
}

// Who holds the lock of a path is said while it is waited for.
func TestCopyWaits(t *testing.T) {
	t.Parallel()
	w := copyWorld(t, "trixie")
	toplevel := w.bulk(t, bulk.Spec{Name: "bulk", Paths: 10, MiB: 3})
	w.sh(t, w.web1, "systemd-run -q --unit=holder flock "+toplevel+".lock sleep 300")
	// It ends some time after somebody began to wait, however long that took.
	ended := make(chan error, 1)
	go func() {
		_, err := w.web1.Sh(t.Context(), "for i in $(seq 1200); do grep -q -e '->' /proc/locks && break; sleep 0.1; done; sleep 14; systemctl stop holder")
		ended <- err
	}()
	o := w.deploy(t, "pushed", "", "--goal push")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	o.want(t, "web1", verdict.Staged)
	o.byCache(t)
	if !o.told("waits for a lock of another process there: flock (process ") && !o.told("waits for a lock of another process there: sleep (process ") {
		t.Errorf("the progress doesn't say what is waited for:\n%s", o.Stdout)
	}
}
