package rig_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
)

func TestRelay(t *testing.T) {
	r := rig.Start(t, rig.Config{Targets: []rig.Target{{
		Name: "web",
		Files: map[string]rig.File{
			"/usr/lib/systemd/system/echo.socket":                      {Content: "[Socket]\nListenStream=7\nAccept=yes\n"},
			"/usr/lib/systemd/system/echo@.service":                    {Content: "[Service]\nStandardInput=socket\nExecStart=/usr/bin/cat\n"},
			"/usr/lib/systemd/system/sockets.target.wants/echo.socket": {Link: "../echo.socket"},
		},
	}}})
	web := r.Host("web")

	t.Run("it delays, and counts bytes and connections", func(t *testing.T) {
		const latency = 150 * time.Millisecond
		relay := open(t, r, web, 7, rig.LinkSpec{Latency: latency})
		start := time.Now()
		got := bash(t, r, `exec 3<>/dev/tcp/127.0.0.1/%d; echo hello >&3; head -n 1 <&3`, relay.Port)
		// A lower bound holds on the slowest machine.
		if took := time.Since(start); took < 2*latency {
			t.Errorf("a round trip took %v over a latency of %v", took, latency)
		}
		if got != "hello\n" {
			t.Errorf("the echo is %q", got)
		}
		if relay.Connections() != 1 || relay.Sent() != 6 || relay.Received() != 6 {
			t.Errorf("%d connections, %d bytes sent, %d received; want 1, 6, 6",
				relay.Connections(), relay.Sent(), relay.Received())
		}
	})
	t.Run("it has a bandwidth, and hands on the end of a stream", func(t *testing.T) {
		const size, rate = 1 << 20, 4 << 20
		relay := open(t, r, web, 7, rig.LinkSpec{BytesPerSecond: rate})
		start := time.Now()
		got := bash(t, r, "head -c %d /dev/zero | nc -N 127.0.0.1 %d | wc -c", size, relay.Port)
		if took, least := time.Since(start), time.Second*size/rate; took < least {
			t.Errorf("%d bytes took %v, which at %d bytes a second takes %v", size, took, rate, least)
		}
		if want := fmt.Sprintln(size); got != want {
			t.Errorf("%s bytes came back, want %s", got, want)
		}
	})
	t.Run("a cut resets connections and refuses new ones until it is mended", func(t *testing.T) {
		relay := open(t, r, web, 7, rig.LinkSpec{})
		port := relay.Port
		live := make(chan string, 1)
		up := make(chan struct{})
		go func() {
			// The answer to the second line never comes: the cut does.
			out, err := r.Deployer.Sh(t.Context(), fmt.Sprintf(
				`exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; echo one >&3; head -n 1 <&3 >/root/one; cat <&3 2>&1; echo ended'`, port))
			live <- fmt.Sprint(out, err)
			close(up)
		}()
		sh(t, r.Deployer, "until grep -qs one /root/one; do :; done")
		relay.Cut(true)
		if got := <-live; !strings.Contains(got, "Connection reset by peer") || !strings.Contains(got, "ended") {
			t.Errorf("the live connection: %s", got)
		}
		<-up
		refused := fmt.Sprintf("nc -z 127.0.0.1 %d && echo taken || echo refused", port)
		if got := bash(t, r, "%s", refused); got != "refused\n" {
			t.Errorf("after the cut a connection is %q", got)
		}
		if err := relay.Mend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := bash(t, r, `exec 3<>/dev/tcp/127.0.0.1/%d; echo again >&3; head -n 1 <&3`, port); got != "again\n" {
			t.Errorf("after mending the echo is %q", got)
		}
	})
	t.Run("a frozen connection is silent, and a new one is not", func(t *testing.T) {
		relay := open(t, r, web, 7, rig.LinkSpec{})
		live := make(chan string, 1)
		go func() {
			out, err := r.Deployer.Sh(t.Context(), fmt.Sprintf(`exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; echo one >&3; head -n 1 <&3 >/root/frozen
				until [ -e /root/on ]; do sleep 0.05; done; echo two >&3; read -t 1 -r line <&3; echo "$? $line"'`, relay.Port))
			live <- fmt.Sprint(out, err)
		}()
		sh(t, r.Deployer, "until grep -qs one /root/frozen; do :; done")
		relay.Freeze()
		sh(t, r.Deployer, "touch /root/on")
		// bash's read says 142 when nothing came in time.
		if got := <-live; !strings.HasPrefix(got, "142 \n") {
			t.Errorf("the frozen connection: %s", got)
		}
		if got := bash(t, r, `exec 3<>/dev/tcp/127.0.0.1/%d; echo again >&3; head -n 1 <&3`, relay.Port); got != "again\n" {
			t.Errorf("on a new connection the echo is %q", got)
		}
	})
	t.Run("a reset of either end reaches the other", func(t *testing.T) {
		relay := open(t, r, web, 7, rig.LinkSpec{})
		got := bash(t, r, `exec 3<>/dev/tcp/127.0.0.1/%d; echo one >&3; head -n 1 <&3
			ssh -o StrictHostKeyChecking=accept-new web systemctl kill --signal=KILL "'echo@*'"; cat <&3; echo ended`, relay.Port)
		if got != "one\nended\n" {
			t.Errorf("the deployer saw %q", got)
		}
	})
	t.Run("a port where nobody listens gives a reset", func(t *testing.T) {
		relay := open(t, r, web, 8, rig.LinkSpec{})
		got := bash(t, r, `exec 3<>/dev/tcp/127.0.0.1/%d; cat <&3 2>&1; echo ended`, relay.Port)
		if !strings.Contains(got, "reset") || !strings.HasSuffix(got, "ended\n") {
			t.Errorf("the deployer saw %q", got)
		}
	})
	t.Run("nobody outside the deployer finds it", func(t *testing.T) {
		relay := open(t, r, web, 7, rig.LinkSpec{})
		if got := sh(t, web, fmt.Sprintf("nc -z %s %d && echo found || echo none", r.Deployer.Addr, relay.Port)); got != "none\n" {
			t.Errorf("from the target it is %q", got)
		}
	})
}

// bash runs a script on the deployer, in a shell that has connections.
func bash(t *testing.T, r *rig.Rig, format string, args ...any) string {
	t.Helper()
	if err := r.Deployer.WriteFile(t.Context(), "/root/script", fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return sh(t, r.Deployer, "bash /root/script")
}

func open(t *testing.T, r *rig.Rig, h *rig.Host, port int, spec rig.LinkSpec) *rig.Relay {
	t.Helper()
	relay, err := r.Relay(t.Context(), h, port, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := relay.Close(); err != nil {
			t.Error(err)
		}
	})
	return relay
}
