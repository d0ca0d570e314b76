package scenario_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// Each fault of the toplevels is a map of one node; good is one without fault.
const faultsFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      node = toplevel: [ { name = "web1"; host = "web1"; inherit toplevel; ssh.options = [ "Port=2201" ]; } ];
    in
    builtins.mapAttrs (_: node) (import ./toplevels/examples-of-faults.nix toplevels)
    // {
      first = toplevels.mkToplevel { name = "first"; };
      good = node (toplevels.mkToplevel { name = "good"; });
      other = node (toplevels.mkToplevel { name = "other"; web.page = "other\n"; });
      slow = node (toplevels.mkToplevel { name = "slow"; faults.activateSeconds = 8; });
      big = node (toplevels.mkToplevel { name = "big"; payload.compressible = 20971520; });
    };
}
`

// faultsWorld is one target that runs and boots the system first.
func faultsWorld(t *testing.T) (scenario.World, *rig.Rig) {
	t.Helper()
	r := rig.Start(t, rig.Config{Targets: []rig.Target{rigworld.Target("web1", 2201)}})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), faultsFlake); err != nil {
		t.Fatal(err)
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err != nil {
		t.Fatal(err)
	}
	if err := rigworld.Install(ctx, r, r.Host("web1"), first); err != nil {
		t.Fatal(err)
	}
	return scenario.World{
		Deployer: rigworld.Machine{Host: r.Deployer}, Flake: rigworld.Flake, Program: rigworld.Program, ClientConfig: rigworld.ClientConfig,
		Targets: []scenario.Target{{Machine: rigworld.Machine{Host: r.Host("web1")}, Node: "web1", Host: "web1", Port: 2201}},
	}, r
}

// Every fault gets the verdict that is true, with the words that tell it, and
// the next deploy of a good system converges.
func TestVerdicts(t *testing.T) {
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	sh := func(script string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := web1.Sh(ctx, script); return err }
	}
	deployer := func(script string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := r.Deployer.Sh(ctx, script); return err }
	}
	const hold = `mkdir -p /run/nixos; setsid flock /run/nixos/switch-to-configuration.lock sleep %d >/dev/null 2>&1 </dev/null &
for i in $(seq 50); do [ -e /run/nixos/switch-to-configuration.lock ] && ! flock -n /run/nixos/switch-to-configuration.lock true && exit 0; sleep 0.1; done; exit 1`
	const budget = "--lock-attempts 3 --lock-interval 0.2s"
	for _, tt := range []struct {
		name, attribute string
		before, after   func(context.Context) error
		env, flags      string
		want            verdict.Verdict
		code            int
		reason          string
		stays           bool // the host runs and boots what it did before
	}{
		{name: "good", attribute: "good", want: verdict.Switched},
		{name: "good again", attribute: "good", want: verdict.Unchanged, stays: true},

		{name: "unit fails", attribute: "unit-fails", want: verdict.Degraded, code: 4, reason: "fault.service"},
		// The failure is this system's own, whenever it is looked at.
		{name: "unit fails still", attribute: "unit-fails", want: verdict.Degraded, code: 4, reason: "fault.service"},
		{name: "back to good", attribute: "good", want: verdict.Switched},
		{name: "unit dies later", attribute: "unit-dies-later", flags: "--settle 4s", want: verdict.Degraded, code: 4, reason: "fault.service"},
		{name: "unit hangs", attribute: "unit-hangs", flags: "--switch-timeout 6s", want: verdict.TimedOut, code: 1, reason: "run time limit"},
		{name: "after a hang", attribute: "good", want: verdict.Switched},
		{name: "activate fails", attribute: "activate-fails", want: verdict.ActivationFailed, code: 1, reason: "Failed to run activate script"},
		{name: "activate missing", attribute: "activate-missing", want: verdict.ActivationFailed, code: 1, reason: "exit code 0"},
		{name: "after failed activations", attribute: "good", want: verdict.Switched},
		{name: "check fails", attribute: "check-fails", want: verdict.Refused, code: 1, reason: "pre-switch check", stays: true},
		{name: "interface changed", attribute: "interface-changed", want: verdict.Refused, code: 1, reason: "init interface", stays: true},
		{name: "wrong architecture", attribute: "wrong-system", want: verdict.Refused, code: 1, reason: "aarch64-linux", stays: true},
		{name: "inhibitor", attribute: "inhibitor-a", want: verdict.Switched},
		{name: "inhibited", attribute: "inhibitor-b", want: verdict.Refused, code: 1, reason: "dbus -> broker", stays: true},
		{name: "exit 1, moved", attribute: "says-failed-moved", want: verdict.Partial, code: 1, reason: "exit code 1"},
		{name: "exit 4, not moved", attribute: "says-failed-stayed", want: verdict.ActivationFailed, code: 1, reason: "exit code 4"},
		{name: "loader fails", attribute: "loader-fails", want: verdict.Unfinalized, code: 1, reason: "Failed to install bootloader"},
		{name: "loader without an entry", attribute: "loader-no-entry", want: verdict.Unfinalized, code: 1, reason: "boots /nix/store/"},
		{name: "loader without an entry, again", attribute: "loader-no-entry", want: verdict.Unfinalized, code: 1, reason: "boots /nix/store/"},
		{name: "loader slow", attribute: "loader-slow", flags: "--boot-timeout 1s", want: verdict.Unfinalized, code: 1, reason: "left alone"},
		{name: "loader slow, waited for", attribute: "loader-slow", want: verdict.Switched},
		{name: "huge log", attribute: "log-huge", want: verdict.Switched},
		{name: "binary log", attribute: "log-binary", want: verdict.Switched},
		{name: "perl", attribute: "perl", want: verdict.Switched},

		{name: "lock held", attribute: "good", flags: budget, before: sh(fmt.Sprintf(hold, 600)), after: sh("kill $(pgrep -f '^sleep 600')"),
			want: verdict.Locked, code: 1, reason: "through 3 tries", stays: true},
		{name: "lock held, old and blocking", attribute: "perl-blocking-lock", flags: budget, before: sh(fmt.Sprintf(hold, 601)), after: sh("kill $(pgrep -f '^sleep 601')"),
			want: verdict.Locked, code: 1, reason: "sleep 601", stays: true},
		{name: "lock held for a while", attribute: "good", before: sh(fmt.Sprintf(hold, 4)), want: verdict.Switched},
		{name: "sessions killed by the switch", attribute: "kills-sessions", want: verdict.Switched},

		{name: "wrong key", attribute: "good", before: deployer("ssh-keygen -q -t ed25519 -N '' -f /root/other"), env: "DEPLOY_SSH_KEY=/root/other",
			want: verdict.LoginRefused, code: 1, reason: "Permission denied (publickey", stays: true},
		{name: "wrong pin", attribute: "good", env: `DEPLOY_SSH_NODES="{\"nodes\":{\"web1\":{\"hostKey\":\"$(cut -d' ' -f1,2 /root/other.pub)\"}}}"`,
			want: verdict.HostKeyRefused, code: 1, reason: "Host key verification failed", stays: true},
		{name: "right pin", attribute: "other", env: `DEPLOY_SSH_NODES='{"nodes":{"web1":{"hostKey":"` + web1.HostKey + `"}}}'`, want: verdict.Switched},
		{name: "noisy shell", attribute: "good", before: sh("cp -a /root/.bashrc /root/.bashrc.kept; echo 'echo Welcome to web1' >/root/.bashrc"), after: sh("mv /root/.bashrc.kept /root/.bashrc"),
			want: verdict.Unusable, code: 1, reason: "Welcome to web1", stays: true},
		{name: "no login shell", attribute: "good", before: sh("usermod -s /usr/sbin/nologin root"), after: sh("usermod -s /bin/bash root"),
			want: verdict.Unusable, code: 1, reason: "This account is currently not available", stays: true},
		{name: "no NixOS", attribute: "good", before: sh("mv /etc/NIXOS /etc/NOT"), after: sh("mv /etc/NOT /etc/NIXOS"), want: verdict.Unusable, code: 1, reason: "no NixOS", stays: true},
		{name: "store database not writable", attribute: "slow", before: sh("mount --bind /nix/var/nix /nix/var/nix && mount -o remount,bind,ro /nix/var/nix"), after: sh("umount /nix/var/nix"),
			want: verdict.CopyFailed, code: 1, reason: "nix copy", stays: true},
		{name: "run folder not writable", attribute: "good", before: sh("rm -rf /run/deploy-ssh; mkdir /run/deploy-ssh; mount --bind -o ro /run/deploy-ssh /run/deploy-ssh && mount -o remount,bind,ro /run/deploy-ssh"), after: sh("umount /run/deploy-ssh"),
			want: verdict.Unscheduled, code: 1, reason: "Read-only file system", stays: true},
		{name: "at last", attribute: "good", want: verdict.Switched},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			before := running(t, ctx, web1)
			if tt.before != nil {
				if err := tt.before(ctx); err != nil {
					t.Fatal(err)
				}
			}
			got, err := w.Result(ctx, tt.attribute, tt.env, "web1", "--settle 0.5s", tt.flags)
			if tt.after != nil {
				if err := tt.after(ctx); err != nil {
					t.Error(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict != tt.want || got.Code != tt.code || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("%s (%s), exit code %d; want %s with %q, exit code %d\n%s", got.Verdict, got.Reason, got.Code, tt.want, tt.reason, tt.code, got.Stderr)
			}
			after := running(t, ctx, web1)
			if tt.stays && after != before {
				t.Errorf("the host was changed: %s, before: %s", after, before)
			}
			if got.Verdict.Good() && after != fmt.Sprintf("runs %s, boots %[1]s, lists []", got.Toplevel) {
				t.Errorf("FALSE SUCCESS: %s of %s, but the host %s", got.Verdict, got.Toplevel, after)
			}
		})
	}
}

// running is what a host runs and boots, read without the program.
func running(t *testing.T, ctx context.Context, h *rig.Host) string {
	t.Helper()
	out, err := h.Sh(ctx, `printf 'runs %s, boots %s, lists [%s]' "$(readlink -f /run/current-system)" "$(`+scenario.BootEntry+`)" "$(ls /run/nixos | grep -- -list)"`)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The line is cut in the middle of the activation, and the host can't be reached
// for a while: the switch goes on, and its true result and whole log come back.
func TestLineCutDuringSwitch(t *testing.T) {
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
	if relay.Connections() != 1 {
		t.Errorf("the deploy made %d connections, want 1", relay.Connections())
	}
	if relay.Sent() > 1<<20 {
		t.Errorf("%d bytes were sent for a closure with 20 MiB of zeros, want less than 1 MiB", relay.Sent())
	}
	t.Logf("%d bytes sent, %d received", relay.Sent(), relay.Received())
}
