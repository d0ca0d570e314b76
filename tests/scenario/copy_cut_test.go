package scenario_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/bulk"
)

// The line is cut at random points of a large copy and stays away: each next run
// sends what is still missing and nothing else, and the garbage collector takes
// nothing of what has arrived.
func TestCopyCut(t *testing.T) {
	t.Parallel()
	w := copyWorld(t, "trixie")
	w.bulk(t, bulk.Spec{Name: "bulk", Paths: 200, MiB: 60})
	relay, err := w.rig.Relay(t.Context(), w.web1, 22, rig.LinkSpec{Latency: 5 * time.Millisecond, BytesPerSecond: 6_000_000})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	const cuts = 10
	arrived := func() int {
		var n int
		out := w.sh(t, w.web1, "ls -d /nix/store/*bulk* 2>/dev/null | xargs -r nix-store --check-validity --print-invalid | wc -l; ls -d /nix/store/*-bulk* 2>/dev/null | wc -l")
		var invalid int
		if _, err := fmt.Sscan(out, &invalid, &n); err != nil {
			t.Fatal(err)
		}
		return n - invalid
	}
	before, total, seed := 0, 201, time.Now().UnixNano()
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	for i := range cuts {
		from := relay.Sent()
		// A tenth of what is about to be sent at most, and somewhere in it.
		after := int64(200_000 + random.IntN(2_200_000))
		cut := make(chan bool)
		go func() {
			defer close(cut)
			for deadline := time.Now().Add(time.Minute); relay.Sent()-from < after && time.Now().Before(deadline); {
				time.Sleep(5 * time.Millisecond)
			}
			relay.Cut(true)
		}()
		o := w.deploy(t, "pushed", relayed(relay), "--goal push --connect-timeout 1s")
		<-cut
		if err := relay.Mend(t.Context()); err != nil {
			t.Fatal(err)
		}
		// What the host was still doing when the line went ends by itself.
		w.sh(t, w.web1, "for i in $(seq 300); do pgrep -x nix-store >/dev/null || exit 0; sleep 0.1; done; exit 1")
		if c := o.copied(); c != nil && c.Missing != total-before {
			t.Errorf("cut %d (seed %d): %d paths were missing, want %d", i, seed, c.Missing, total-before)
		}
		w.sh(t, w.web1, "nix-collect-garbage >/dev/null 2>&1")
		now := arrived()
		if now < before {
			t.Errorf("cut %d: %d paths were there, now %d are", i, before, now)
		}
		t.Logf("cut after %d bytes: %s, %d paths there", relay.Sent()-from, o.results["web1"].Verdict, now)
		before = now
	}
	from := relay.Sent()
	o := w.deploy(t, "pushed", relayed(relay), "--goal push")
	o.want(t, "web1", verdict.Staged)
	c := o.byCache(t)
	if c.Missing != total-before || c.FromHere != c.Missing {
		t.Errorf("counted %+v, want the %d paths that were missing", c, total-before)
	}
	t.Logf("the last run sent %d bytes for %d of %d paths", relay.Sent()-from, c.FromHere, total)
}

// A line that comes back while the copy goes on: the same run ends it.
func TestCopyGoesOn(t *testing.T) {
	t.Parallel()
	w := copyWorld(t, "trixie")
	w.bulk(t, bulk.Spec{Name: "bulk", Paths: 100, MiB: 20})
	relay, err := w.rig.Relay(t.Context(), w.web1, 22, rig.LinkSpec{BytesPerSecond: 3_000_000})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	cut := make(chan bool)
	go func() {
		defer close(cut)
		for deadline := time.Now().Add(time.Minute); relay.Sent() < 3_000_000 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		relay.Cut(false)
	}()
	o := w.deploy(t, "pushed", relayed(relay), "--goal push")
	<-cut
	o.want(t, "web1", verdict.Staged)
	if c := o.byCache(t); c.Tries != 2 {
		t.Errorf("counted %+v, want two tries", c)
	}
}

// An attacker on the host finds the port and gets nothing without the token; when
// the run is over the port is gone.
func TestCopyAttackerOnTheHost(t *testing.T) {
	t.Parallel()
	w := copyWorld(t, "trixie")
	w.bulk(t, bulk.Spec{Name: "bulk", Paths: 100, MiB: 20})
	relay, err := w.rig.Relay(t.Context(), w.web1, 22, rig.LinkSpec{BytesPerSecond: 2_000_000})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	w.sh(t, w.web1, "useradd -m -s /bin/bash mallory")
	type found struct {
		out string
		err error
	}
	attack := make(chan found, 1)
	go func() {
		// As mallory, while the copy is under way: what listens on the loopback beside
		// sshd, what it answers, and what of other users' processes she can read.
		out, err := w.web1.Sh(t.Context(), `for i in $(seq 200); do pgrep -x nix-store >/dev/null && break; sleep 0.05; done; sleep 0.3
runuser -u mallory -- bash -c '
ports() { while read -r n local remote state rest; do [ "$state" = 0A ] && [ "${local%:*}" = 0100007F ] && echo $((16#${local#*:})); done </proc/net/tcp; }
for port in $(ports); do
  echo port $port
  for path in / /nix-cache-info /0/nix-cache-info /../../etc/passwd; do
    exec 3<>/dev/tcp/127.0.0.1/$port && printf "GET $path HTTP/1.0\r\n\r\n" >&3 && head -n 1 <&3
  done
done
for p in /proc/[0-9]*; do tr "\0" "\n" <$p/cmdline; tr "\0" "\n" <$p/environ; done 2>/dev/null | grep -E "[1]27[.]0[.]0[.]1:|deploy-ssh-[0-9a-f]{16}"
ls /run/deploy-ssh-copy.*/ 2>&1
true'`)
		attack <- found{out, err}
	}()
	o := w.deploy(t, "pushed", relayed(relay), "--goal push")
	got := <-attack
	if got.err != nil {
		t.Fatal(got.err)
	}
	o.want(t, "web1", verdict.Staged)
	o.byCache(t)
	port, ports := "", 0
	for line := range strings.Lines(got.out) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "port "); ok {
			port, ports = rest, ports+1
		}
	}
	if ports != 1 {
		t.Fatalf("mallory found %d ports, want the one of the forward:\n%s", ports, got.out)
	}
	if strings.Count(got.out, "404 Not Found") != 4 || strings.Contains(got.out, "200 OK") {
		t.Errorf("mallory was answered:\n%s", got.out)
	}
	if strings.Contains(got.out, "127.0.0.1:") || regexp.MustCompile(`deploy-ssh-[0-9a-f]{16}`).MatchString(got.out) {
		t.Errorf("mallory read a secret:\n%s", got.out)
	}
	if _, err := netip.ParseAddrPort("127.0.0.1:" + port); err != nil {
		t.Fatal(err)
	}
	if out := w.sh(t, w.web1, "exec 2>&1; bash -c 'exec 3<>/dev/tcp/127.0.0.1/"+port+"' && echo open; true"); strings.Contains(out, "open") {
		t.Errorf("the port is open after the run: %s", out)
	}
}
