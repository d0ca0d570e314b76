package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
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
      dying = seconds: { "late.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nExecStart=/bin/sh -c 'sleep ${toString seconds}; exit 3'\n"; }; };
      failing = { "old.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nType=oneshot\nExecStart=/bin/false\n"; }; };
      node = toplevel: [ { name = "web1"; host = "web1"; inherit toplevel; ssh.options = [ "Port=2201" ]; } ];
    in
    builtins.mapAttrs (_: node) (import ./toplevels/examples-of-faults.nix toplevels)
    // {
      first = toplevels.mkToplevel { name = "first"; };
      good = node (toplevels.mkToplevel { name = "good"; });
      other = node (toplevels.mkToplevel { name = "other"; web.page = "other\n"; });
      ignored = [ (builtins.head (node (toplevels.mkToplevel { name = "ignored"; faults.unit = "fails"; })) // { ignoreUnits = [ "fault.*" ]; }) ];
      elevated = {
        sudo = { defaults.elevate = "sudo"; nodes = node (toplevels.mkToplevel { name = "sudo"; }); };
        sudo2 = { defaults.elevate = "sudo"; nodes = node (toplevels.mkToplevel { name = "sudo2"; }); };
        doas = { nodes = [ (builtins.head (node (toplevels.mkToplevel { name = "doas"; })) // { elevate = "doas"; }) ]; };
      };
      # Units that die some seconds after they started, and one that always fails.
      dies2 = node (toplevels.mkToplevel { name = "dies2"; units = dying 2; });
      dies6 = node (toplevels.mkToplevel { name = "dies6"; units = dying 6; });
      flaps = node (toplevels.mkToplevel { name = "flaps"; units."flaps.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nRestart=always\nRestartSec=60\nExecStart=/bin/sh -c 'sleep 2; exit 3'\n"; }; });
      old = node (toplevels.mkToplevel { name = "old"; units = failing; });
      oldDies = node (toplevels.mkToplevel { name = "old-dies"; units = failing // dying 2; });
      broken2 = node (toplevels.mkToplevel { name = "broken2"; faults.unit = "fails"; });
      blind = node (toplevels.mkToplevel { name = "blind"; units = dying 2 // { "blinds.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nType=oneshot\nExecStart=/bin/sh -c '(sleep 1; chmod -x /usr/bin/systemctl) &'\nKillMode=none\n"; }; }; });
      hangs = node (toplevels.mkToplevel { name = "hangs"; faults.activateSeconds = 100000; });
      grub = node (toplevels.mkToplevel { name = "grub"; loader = "grub"; });
      exits = builtins.listToAttrs (builtins.concatMap (code: map (moved: {
        name = "c${toString code}${if moved then "true" else "false"}";
        value = node (toplevels.mkToplevel {
          name = "exit-${toString code}-${if moved then "moved" else "stayed"}";
          faults.switch = { exit = code; inherit moved; warn = true; };
        });
      }) [ true false ]) [ 0 1 2 4 11 100 101 126 127 137 255 ]);
      vast = node (toplevels.mkToplevel { name = "vast"; faults.log = "vast"; });
      starting = node (toplevels.mkToplevel {
        name = "starting";
        units."starts-slowly.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nType=oneshot\nExecStart=/bin/sleep 8\n"; };
      });
      slower = node (toplevels.mkToplevel { name = "slower"; faults.activateSeconds = 6; });
      bulky = node (toplevels.mkToplevel { name = "bulky"; payload.incompressible = 209715200; });
      slow = node (toplevels.mkToplevel { name = "slow"; faults.activateSeconds = 8; });
      big = node (toplevels.mkToplevel { name = "big"; payload.compressible = 20971520; });
    };
}
`

// faultsWorld is one target that runs and boots the system first.
func faultsWorld(t *testing.T) (scenario.World, *rig.Rig) {
	t.Helper()
	return faultsWorldOf(t, func(*rig.Target) {})
}

func faultsWorldOf(t *testing.T, change func(*rig.Target)) (scenario.World, *rig.Rig) {
	t.Helper()
	target := rigworld.Target("web1", 2201)
	change(&target)
	r := rig.Start(t, rig.Config{Targets: []rig.Target{target}})
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

// a row of the fault matrix.
type row struct {
	// fault names what goes wrong, and where.
	fault string
	// attribute is the map that is deployed; flags and env are the call's.
	attribute, flags, env string
	// before and after are done on the rig around the deploy.
	before, after func(context.Context) error
	// during is done once the switch's log has the text at.
	at     string
	during func(context.Context) error
	want   verdict.Verdict
	code   int
	// reason is what the result's reason must hold.
	reason string
	// note is what one of its notes must hold.
	note string
	// stays says that the host runs and boots what it did before.
	stays bool
	// check, if not nil, looks at the result and the host.
	check func(context.Context, scenario.Result) error
}

// matrix collects the rows for the table that -v prints.
var matrix struct {
	sync.Mutex
	table strings.Builder
}

func TestMain(m *testing.M) {
	code := m.Run()
	if testing.Verbose() && matrix.table.Len() > 0 {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprint(w, "\nFAULT\tVERDICT\tEXIT\tTIME TO VERDICT\n"+matrix.table.String())
		w.Flush()
	}
	os.Exit(code)
}

// play deploys each row in turn on one rig. Every row gets the verdict that is
// true, and no good one comes with a host that isn't.
func play(t *testing.T, w scenario.World, web1 *rig.Host, rows []row) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.fault, func(t *testing.T) {
			ctx := t.Context()
			before := running(t, ctx, web1)
			if tt.before != nil {
				if err := tt.before(ctx); err != nil {
					t.Fatal(err)
				}
			}
			during := make(chan error, 1)
			if tt.during == nil {
				during <- nil
			} else {
				// An earlier run's log would pass for this one's.
				if _, err := web1.Sh(ctx, "rm -rf /run/deploy-ssh/*-*"); err != nil {
					t.Fatal(err)
				}
				go func() {
					_, err := web1.Sh(ctx, "for i in $(seq 300); do grep -aqs -e '"+tt.at+"' /run/deploy-ssh/*-*/*.log && exit 0; sleep 0.1; done; exit 1")
					if err == nil {
						err = tt.during(ctx)
					}
					during <- err
				}()
			}
			began := time.Now()
			got, err := w.Result(ctx, tt.attribute, tt.env, "web1", "--settle 0.5s", tt.flags)
			took := time.Since(began)
			if err := <-during; err != nil {
				t.Errorf("during the switch: %v", err)
			}
			if tt.after != nil {
				if err := tt.after(ctx); err != nil {
					t.Error(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			matrix.Lock()
			fmt.Fprintf(&matrix.table, "%s\t%s\t%d\t%.1fs\n", tt.fault, got.Verdict, got.Code, took.Seconds())
			matrix.Unlock()
			notes := strings.Join(got.Notes, "\n")
			if got.Verdict != tt.want || got.Code != tt.code || !strings.Contains(got.Reason, tt.reason) || !strings.Contains(notes, tt.note) {
				t.Errorf("%s (%s), exit code %d, notes %q; want %s with %q, exit code %d, a note with %q\n%s",
					got.Verdict, got.Reason, got.Code, notes, tt.want, tt.reason, tt.code, tt.note, got.Stderr)
			}
			if tt.check != nil {
				if err := tt.check(ctx, got); err != nil {
					t.Error(err)
				}
			}
			after := running(t, ctx, web1)
			if tt.stays && after != before {
				t.Errorf("the host was changed: %s, before: %s", after, before)
			}
			whole := fmt.Sprintf("runs %s, boots %[1]s, lists []", got.Toplevel)
			if (got.Verdict == verdict.Switched || got.Verdict == verdict.Unchanged) && !strings.Contains(tt.flags, "--goal") && after != whole {
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

// on makes a step of a script on a host.
func on(h *rig.Host, script string) func(context.Context) error {
	return func(ctx context.Context) error { _, err := h.Sh(ctx, script); return err }
}

// hold is a script by which somebody else holds the lock for some seconds.
const hold = `mkdir -p /run/nixos; setsid flock /run/nixos/switch-to-configuration.lock sleep %d >/dev/null 2>&1 </dev/null &
for i in $(seq 50); do [ -e /run/nixos/switch-to-configuration.lock ] && ! flock -n /run/nixos/switch-to-configuration.lock true && exit 0; sleep 0.1; done; exit 1`

// budget is a small retry budget.
const budget = "--lock-attempts 3 --lock-interval 0.2s"

func TestFaultsOfTheSystem(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	play(t, w, web1, []row{
		{fault: "good", attribute: "good", want: verdict.Switched},
		{fault: "good again", attribute: "good", want: verdict.Unchanged, stays: true},

		{fault: "unit fails", attribute: "unit-fails", want: verdict.Degraded, code: 4, reason: "fault.service"},
		// The failure is this system's own, whenever it is looked at.
		{fault: "unit fails still", attribute: "unit-fails", want: verdict.Degraded, code: 4, reason: "fault.service"},
		{fault: "back to good", attribute: "good", want: verdict.Switched},
		{fault: "unit dies later", attribute: "unit-dies-later", flags: "--settle 4s", want: verdict.Degraded, code: 4, reason: "fault.service"},
		{fault: "unit fails, ignored", attribute: "ignored", want: verdict.Switched, note: "fault.service"},
		{fault: "good once more", attribute: "good", want: verdict.Switched},
		{fault: "unit fails, accepted", attribute: "unit-fails", flags: "--accept-degraded", want: verdict.Switched, note: "accepted: failed units: fault.service"},
		{fault: "unit fails, looked at again", attribute: "unit-fails", want: verdict.Unchanged, note: "fault.service", stays: true},
		{fault: "unit's start job cancelled", attribute: "unit-cancelled", flags: "--settle 2s", want: verdict.Switched},
		{fault: "unit hangs", attribute: "unit-hangs", flags: "--switch-timeout 6s", want: verdict.TimedOut, code: 1, reason: "run time limit"},
		{fault: "after a hang", attribute: "good", want: verdict.Switched},
		{fault: "activate fails", attribute: "activate-fails", want: verdict.ActivationFailed, code: 1, reason: "Failed to run activate script"},
		{fault: "activate missing", attribute: "activate-missing", want: verdict.ActivationFailed, code: 1, reason: "exit code 0"},
		{fault: "after failed activations", attribute: "good", want: verdict.Switched},
		{fault: "check fails", attribute: "check-fails", want: verdict.Refused, code: 1, reason: "pre-switch check", stays: true},
		{fault: "interface changed", attribute: "interface-changed", want: verdict.Refused, code: 1, reason: "init interface", stays: true},
		{fault: "wrong architecture", attribute: "wrong-system", want: verdict.Refused, code: 1, reason: "aarch64-linux", stays: true},
		{fault: "inhibitor", attribute: "inhibitor-a", want: verdict.Switched},
		{fault: "inhibited", attribute: "inhibitor-b", want: verdict.Refused, code: 1, reason: "dbus -> broker", stays: true},
		{fault: "exit 1, moved", attribute: "says-failed-moved", want: verdict.Partial, code: 1, reason: "exit code 1"},
		{fault: "exit 4, not moved", attribute: "says-failed-stayed", want: verdict.ActivationFailed, code: 1, reason: "exit code 4"},
		{fault: "loader fails", attribute: "loader-fails", want: verdict.Unfinalized, code: 1, reason: "Failed to install bootloader"},
		{fault: "loader without an entry", attribute: "loader-no-entry", want: verdict.Unfinalized, code: 1, reason: "boots /nix/store/"},
		{fault: "loader without an entry, again", attribute: "loader-no-entry", want: verdict.Unfinalized, code: 1, reason: "boots /nix/store/"},
		{fault: "loader slow", attribute: "loader-slow", flags: "--boot-timeout 1s", want: verdict.Unfinalized, code: 1, reason: "left alone"},
		{fault: "loader slow, waited for", attribute: "loader-slow", want: verdict.Switched},
		{fault: "huge log", attribute: "log-huge", want: verdict.Switched},
		{fault: "binary log", attribute: "log-binary", want: verdict.Switched},
		{fault: "perl", attribute: "perl", want: verdict.Switched},
	})
}

func TestFaultsOfTheHost(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	sh := func(script string) func(context.Context) error { return on(web1, script) }
	deployer := func(script string) func(context.Context) error { return on(r.Deployer, script) }
	play(t, w, web1, []row{
		{fault: "good", attribute: "other", want: verdict.Switched},
		{fault: "lock held", attribute: "good", flags: budget, before: sh(fmt.Sprintf(hold, 600)), after: sh("kill $(pgrep -f '^sleep 600')"),
			want: verdict.Locked, code: 1, reason: "through 3 tries", stays: true},
		{fault: "lock held, old and blocking", attribute: "perl-blocking-lock", flags: budget, before: sh(fmt.Sprintf(hold, 601)), after: sh("kill $(pgrep -f '^sleep 601')"),
			want: verdict.Locked, code: 1, reason: "sleep 601", stays: true},
		{fault: "lock held for a while", attribute: "good", before: sh(fmt.Sprintf(hold, 4)), want: verdict.Switched},
		{fault: "sessions killed by the switch", attribute: "kills-sessions", want: verdict.Switched},

		{fault: "wrong key", attribute: "good", before: deployer("ssh-keygen -q -t ed25519 -N '' -f /root/other"), env: "DEPLOY_SSH_KEY=/root/other",
			want: verdict.LoginRefused, code: 1, reason: "Permission denied (publickey", stays: true},
		{fault: "wrong pin", attribute: "good", env: `DEPLOY_SSH_NODES="{\"nodes\":{\"web1\":{\"hostKey\":\"$(cut -d' ' -f1,2 /root/other.pub)\"}}}"`,
			want: verdict.HostKeyRefused, code: 1, reason: "Host key verification failed", stays: true},
		{fault: "right pin", attribute: "other", env: `DEPLOY_SSH_NODES='{"nodes":{"web1":{"hostKey":"` + web1.HostKey + `"}}}'`, want: verdict.Switched},
		{fault: "noisy shell", attribute: "good", before: sh("cp -a /root/.bashrc /root/.bashrc.kept; echo 'echo Welcome to web1' >/root/.bashrc"), after: sh("mv /root/.bashrc.kept /root/.bashrc"),
			want: verdict.Unusable, code: 1, reason: "Welcome to web1", stays: true},
		{fault: "no login shell", attribute: "good", before: sh("usermod -s /usr/sbin/nologin root"), after: sh("usermod -s /bin/bash root"),
			want: verdict.Unusable, code: 1, reason: "This account is currently not available", stays: true},
		{fault: "no NixOS", attribute: "good", before: sh("mv /etc/NIXOS /etc/NOT"), after: sh("mv /etc/NOT /etc/NIXOS"), want: verdict.Unusable, code: 1, reason: "no NixOS", stays: true},
		{fault: "store database not writable", attribute: "slow", before: sh("mount --bind /nix/var/nix /nix/var/nix && mount -o remount,bind,ro /nix/var/nix"), after: sh("umount /nix/var/nix"),
			want: verdict.CopyFailed, code: 1, reason: "nix copy", stays: true},
		{fault: "run folder not writable", attribute: "good", before: sh("rm -rf /run/deploy-ssh; mkdir /run/deploy-ssh; mount --bind -o ro /run/deploy-ssh /run/deploy-ssh && mount -o remount,bind,ro /run/deploy-ssh"), after: sh("umount /run/deploy-ssh"),
			want: verdict.Unscheduled, code: 1, reason: "Read-only file system", stays: true},
		{fault: "at last", attribute: "good", want: verdict.Switched},
	})
}

// The exit table of the switch: each code with the link moved and not.
func TestFaultsOfExitCodes(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	var rows []row
	for _, code := range []int{0, 1, 2, 4, 11, 100, 101, 126, 127, 137, 255} {
		for _, moved := range []bool{false, true} {
			// The stub makes no boot entry, so even its best end boots the old one.
			want := row{want: verdict.ActivationFailed, code: 1, reason: fmt.Sprint("exit code ", code), stays: true}
			switch {
			case moved && code == 0:
				want = row{want: verdict.Unfinalized, code: 1, reason: "boots /nix/store/"}
			case moved && code == 4:
				want = row{want: verdict.Degraded, code: 4, reason: "fault.service"}
			case moved && code == 2:
				want = row{want: verdict.ActivationFailed, code: 1, reason: "exit code 2"}
			case moved:
				want = row{want: verdict.Partial, code: 1, reason: fmt.Sprint("exit code ", code)}
			case code == 100:
				want = row{want: verdict.Refused, code: 1, reason: "init interface", stays: true}
			}
			want.fault = fmt.Sprintf("exit code %d, moved: %v", code, moved)
			want.attribute = fmt.Sprintf("exits.c%d%v", code, moved)
			rows = append(rows, want)
		}
	}
	play(t, w, web1, append(rows, row{fault: "after all of them", attribute: "good", want: verdict.Switched}))
}

func TestFaultsOfSystemd(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	sh := func(script string) func(context.Context) error { return on(web1, script) }
	const going = "takes its time: 2"
	play(t, w, web1, []row{
		{fault: "good", attribute: "good", want: verdict.Switched},
		{fault: "bus dead before", attribute: "other", before: sh("systemctl stop dbus.socket dbus.service"), after: sh("systemctl start dbus.socket dbus.service; systemctl restart systemd-logind"),
			want: verdict.ActivationFailed, code: 1, reason: "Failed to open dbus connection", stays: true},
		{fault: "after the dead bus", attribute: "other", want: verdict.Switched},
		{fault: "bus stopped during activation", attribute: "slow", at: going, during: sh("systemctl stop dbus.socket dbus.service"), after: sh("systemctl start dbus.socket dbus.service; systemctl restart systemd-logind"),
			want: verdict.Partial, code: 1, reason: "Failed to reset failed units"},
		{fault: "after the lost bus", attribute: "slow", want: verdict.Switched},
		{fault: "logind masked", attribute: "good", before: sh("systemctl mask --runtime systemd-logind.service; systemctl stop systemd-logind.service"), after: sh("systemctl unmask --runtime systemd-logind.service; systemctl start systemd-logind.service"),
			want: verdict.Partial, code: 1, reason: "Unable to list users with logind"},
		{fault: "after logind came back", attribute: "good", want: verdict.Switched},
		{fault: "slow logins", attribute: "other", before: sh("cp /etc/pam.d/sshd /root/pam.kept; sed -i '1i session required pam_exec.so /bin/sleep 25' /etc/pam.d/sshd; sed -i '/pam_exec/{h;d};${p;x}' /etc/pam.d/sshd"), after: sh("mv /root/pam.kept /etc/pam.d/sshd"),
			want: verdict.Switched},
		{fault: "transient units refused", attribute: "good", before: sh("mkdir -p /run/systemd/transient; mount --bind /run/systemd/transient /run/systemd/transient && mount -o remount,bind,ro /run/systemd/transient"), after: sh("umount /run/systemd/transient"),
			want: verdict.Unscheduled, code: 1, reason: "Read-only file system", stays: true},
		{fault: "switch killed (SIGKILL)", attribute: "slow", at: going, during: sh("kill -KILL $(pgrep -f '[.]switch-to-configuration-wrapped test|bin/switch-to-configuration test' | head -1)"),
			want: verdict.ActivationFailed, code: 1},
		{fault: "all of the switch killed", attribute: "slow", at: going, during: sh("systemctl kill -s KILL 'deploy-ssh-*-test.service'"), want: verdict.ActivationFailed, code: 1, reason: "left no result"},
		{fault: "switch stopped by somebody", attribute: "slow", at: going, during: sh("systemctl stop 'deploy-ssh-*-test.service'"), want: verdict.ActivationFailed, code: 1, reason: "signal TERM"},
		{fault: "after the killed ones", attribute: "good", want: verdict.Switched},
		{fault: "activation hangs, limited", attribute: "hangs", flags: "--switch-timeout 4s", want: verdict.TimedOut, code: 1, reason: "run time limit"},
		{fault: "start job hangs, limited", attribute: "unit-hangs", flags: "--switch-timeout 8s", want: verdict.TimedOut, code: 1, reason: "start of fault.service"},
		{fault: "after the hanging ones", attribute: "good", want: verdict.Switched},
		{fault: "stale reload-list", attribute: "other", before: sh("mkdir -p /run/nixos; echo gone.service >/run/nixos/reload-list"), want: verdict.Switched},
		{fault: "lock taken after the activation", attribute: "good", flags: budget + " --settle 3s", at: "^activating the configuration", during: sh("sleep 1.5;" + fmt.Sprintf(hold, 602)), after: sh("kill $(pgrep -f '^sleep 602')"),
			want: verdict.Unfinalized, code: 1, reason: "sleep 602"},
		{fault: "runs new, boots old", attribute: "good", want: verdict.Switched},
		{fault: "lock inherited from a dead process", attribute: "other", flags: budget, after: sh("kill $(pgrep -f '^sleep 603')"),
			before: sh(`exec 9>>/run/nixos/switch-to-configuration.lock; flock 9; setsid sleep 603 >/dev/null 2>&1 </dev/null & exit 0`),
			want:   verdict.Locked, code: 1, reason: "sleep 603), which inherited it", stays: true},
		{fault: "store full", attribute: "big", before: sh("mkdir -p /small; mount -t tmpfs -o size=2m tmpfs /small; mkdir /small/u /small/w; mount -t overlay overlay -o lowerdir=/nix/store,upperdir=/small/u,workdir=/small/w /nix/store"), after: sh("umount /nix/store; umount /small"),
			want: verdict.CopyFailed, code: 1, reason: "No space left on device", stays: true},
		{fault: "/boot full", attribute: "other", before: sh("cp -a /boot /boot.kept; mount -t tmpfs -o size=200k tmpfs /boot; cp -a /boot.kept/. /boot/; head -c 1000000 /dev/zero >/boot/fill 2>/dev/null; true"), after: sh("umount /boot; rm -rf /boot.kept"),
			want: verdict.Unfinalized, code: 1},
		{fault: "after the full disks", attribute: "good", want: verdict.Switched},
		{fault: "host rebooted during the switch", attribute: "slow", at: going, during: sh("systemctl reboot --force"), want: verdict.Rebooted, code: 1},
		{fault: "host crashed during the switch", attribute: "slow", at: going, flags: "--connect-timeout 3s",
			during: func(ctx context.Context) error { return errors.Join(web1.Kill(ctx), web1.Boot(ctx)) }, want: verdict.Rebooted, code: 1},
		{fault: "after the reboots", attribute: "good", want: verdict.Unchanged, stays: true},
		{fault: "sshd gone during the switch", attribute: "slow", at: going, during: sh("systemctl mask --runtime --now ssh.service"), after: sh("systemctl unmask --runtime ssh.service; systemctl start ssh.service"),
			want: verdict.NoLogin, code: 1, reason: "Connection refused"},
		{fault: "after sshd came back", attribute: "good", want: verdict.Switched},
		{fault: "sshd on another port", attribute: "slow", at: going, during: sh("sed -i 's/2201/2299/' /etc/ssh/sshd_config.d/20-port.conf; systemctl restart ssh.service"), after: sh("sed -i 's/2299/2201/' /etc/ssh/sshd_config.d/20-port.conf; systemctl restart ssh.service"),
			want: verdict.NoLogin, code: 1, reason: "Connection refused"},
		{fault: "no login, confirmed switch goes back", attribute: "other", flags: "--confirm 3s", at: "^activating the configuration", during: sh("systemctl mask --runtime --now ssh.service"), after: sh("systemctl unmask --runtime ssh.service; systemctl start ssh.service"),
			want: verdict.RolledBack, code: 1},
		{fault: "confirmed", attribute: "other", flags: "--confirm 10s", want: verdict.Switched, check: func(ctx context.Context, _ scenario.Result) error {
			return on(web1, "! systemctl is-active 'deploy-ssh-*-back.service'")(ctx)
		}},
		{fault: "bus restarted while a unit starts", attribute: "starting", at: "^restarting sysinit-reactivation", during: sh("sleep 2; systemctl restart dbus.service"), after: sh("systemctl restart systemd-logind"),
			want: verdict.Partial, code: 1, reason: "Failed to process dbus messages while waiting for jobs"},
		{fault: "after the restarted bus", attribute: "starting", want: verdict.Switched},
		{fault: "boot entry with a dead bus", attribute: "good", flags: "--goal boot", before: sh("systemctl stop dbus.socket dbus.service"), after: sh("systemctl start dbus.socket dbus.service; systemctl restart systemd-logind"), want: verdict.Staged},
		{fault: "address gone for a while", attribute: "slow", at: going,
			during: func(ctx context.Context) error {
				if err := web1.Unplug(ctx); err != nil {
					return err
				}
				time.Sleep(5 * time.Second)
				return web1.Plug(ctx)
			}, want: verdict.Switched},
		{fault: "log of 100 MB", attribute: "vast", flags: "--no-progress", want: verdict.Switched},
		{fault: "start job hangs, named meanwhile", attribute: "unit-hangs", flags: "--switch-timeout 34s", want: verdict.TimedOut, code: 1, reason: "start of fault.service",
			check: func(_ context.Context, got scenario.Result) error {
				if lines := strings.Join(got.Lines, "\n"); !strings.Contains(lines, "systemd is still at: start of fault.service (30s)") {
					return fmt.Errorf("the job waited for was not named meanwhile:\n%s", lines)
				}
				return nil
			}},
		{fault: "after the named one", attribute: "good", want: verdict.Switched},
		{fault: "bus frozen during activation", attribute: "slow", at: going, during: sh("pid=$(systemctl show -P MainPID dbus.service); kill -STOP $pid; sleep 8; kill -CONT $pid"), want: verdict.Switched},
	})
}

// Two deploys at once on one host: of the same system, the later one follows the
// first; of another, it waits for it.
func TestFaultsOfTwoDeploys(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	behind := func(attribute string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.Deployer.Sh(ctx, "cd "+rigworld.Flake+" && (setsid deploy-ssh .#"+attribute+" --settle 0.5s >/root/behind.log 2>&1 </dev/null; echo exit $? >>/root/behind.log) & exit 0")
			if err == nil {
				_, err = web1.Sh(ctx, "for i in $(seq 200); do grep -qs 'takes its time: 1' /run/deploy-ssh/*-*/test.log && exit 0; sleep 0.1; done; exit 1")
			}
			return err
		}
	}
	ended := on(r.Deployer, "for i in $(seq 300); do grep -q '^exit' /root/behind.log && break; sleep 0.1; done; grep -q '^exit 0' /root/behind.log || { cat /root/behind.log >&2; exit 1; }")
	play(t, w, web1, []row{
		{fault: "another deploy of the same system", attribute: "slow", before: behind("slow"), after: ended, want: verdict.Switched, note: "was followed"},
		{fault: "good", attribute: "good", want: verdict.Switched},
		// The later one has the last word, and waits for the first to end.
		{fault: "another deploy of another system", attribute: "other", before: behind("slow"), want: verdict.Switched},
	})
}

func TestGoals(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	runsBoots := func(runs, boots string) func(context.Context, scenario.Result) error {
		return func(ctx context.Context, got scenario.Result) error {
			out, err := web1.Sh(ctx, "readlink -f /run/current-system; "+scenario.BootEntry)
			if err != nil {
				return err
			}
			lines := strings.Fields(out)
			if len(lines) != 2 || !strings.HasSuffix(lines[0], runs) || !strings.HasSuffix(lines[1], boots) {
				return fmt.Errorf("runs and boots %q, want %q and %q", lines, runs, boots)
			}
			return nil
		}
	}
	play(t, w, web1, []row{
		{fault: "goal build", attribute: "good", flags: "--goal build", want: verdict.Staged, stays: true},
		{fault: "goal push", attribute: "good", flags: "--goal push", want: verdict.Staged, stays: true, check: func(ctx context.Context, got scenario.Result) error {
			return on(web1, "nix-store --check-validity "+got.Toplevel)(ctx)
		}},
		{fault: "goal dry-activate", attribute: "other", flags: "--goal dry-activate", want: verdict.Staged, stays: true, check: func(_ context.Context, got scenario.Result) error {
			if log := strings.Join(got.HostLines, "\n"); !strings.Contains(log, "would activate the configuration...") {
				return fmt.Errorf("the dry run does not tell what it would do:\n%s", log)
			}
			return nil
		}},
		{fault: "goal test", attribute: "other", flags: "--goal test", want: verdict.Staged, check: runsBoots("test-other", "test-first")},
		{fault: "goal test again", attribute: "other", flags: "--goal test", want: verdict.Unchanged, stays: true},
		{fault: "goal boot", attribute: "good", flags: "--goal boot", want: verdict.Staged, check: runsBoots("test-other", "test-good")},
		{fault: "goal boot again", attribute: "good", flags: "--goal boot", want: verdict.Unchanged, stays: true},
		{fault: "goal boot and reboot", attribute: "good", flags: "--goal boot --reboot", want: verdict.Switched, check: runsBoots("test-good", "test-good")},
		{fault: "init interface changed", attribute: "interface-changed", want: verdict.Refused, code: 1, reason: "init interface", stays: true},
		{fault: "init interface changed, by reboot", attribute: "interface-changed", flags: "--goal boot --reboot", want: verdict.Switched, check: runsBoots("interface-changed", "interface-changed")},
		{fault: "and back, by reboot", attribute: "good", flags: "--goal boot --reboot", want: verdict.Switched, check: runsBoots("test-good", "test-good")},
		{fault: "switch and reboot", attribute: "other", flags: "--reboot", want: verdict.Switched, check: runsBoots("test-other", "test-other")},
		{fault: "pre-switch check skipped", attribute: "check-fails", flags: "--no-check", want: verdict.Switched},
	})
}

// A login user who is not root, with sudo or doas and without.
func TestElevation(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	sh := func(script string) func(context.Context) error { return on(web1, script) }
	as := func(user string) string { return "DEPLOY_SSH_USER=" + user }
	if _, err := web1.Sh(t.Context(), `for user in sudoer doer plain asked; do
  useradd -m -s /bin/bash $user && mkdir -p /home/$user/.ssh && cp /root/.ssh/authorized_keys /home/$user/.ssh/ && chown -R $user /home/$user/.ssh && chmod 700 /home/$user/.ssh
done
echo 'sudoer ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/sudoer
echo 'asked ALL=(ALL) ALL' >/etc/sudoers.d/asked; chmod 440 /etc/sudoers.d/*
echo 'permit nopass doer' >/etc/doas.conf; chmod 600 /etc/doas.conf`); err != nil {
		t.Fatal(err)
	}
	play(t, w, web1, []row{
		{fault: "sudo", attribute: "elevated.sudo", env: as("sudoer"), want: verdict.Switched},
		{fault: "sudo again", attribute: "elevated.sudo", env: as("sudoer"), want: verdict.Unchanged, stays: true},
		{fault: "sudo without a rule", attribute: "elevated.sudo", env: as("plain"), want: verdict.ElevationRefused, code: 1, reason: "sudo:", stays: true},
		{fault: "sudo that asks for a password", attribute: "elevated.sudo", env: as("asked"), want: verdict.ElevationRefused, code: 1, reason: "password is required", stays: true},
		{fault: "no elevation", attribute: "good", env: as("sudoer"), want: verdict.Unusable, code: 1, reason: "needs root", stays: true},
		{fault: "doas", attribute: "elevated.doas", env: as("doer"), want: verdict.Switched},
		{fault: "doas without a rule", attribute: "elevated.doas", env: as("plain"), want: verdict.ElevationRefused, code: 1, reason: "doas:", stays: true},
		{fault: "sudo is missing", attribute: "elevated.sudo", env: as("sudoer"), before: sh("mv /usr/bin/sudo /usr/bin/sudo.kept"), after: sh("mv /usr/bin/sudo.kept /usr/bin/sudo"),
			want: verdict.ElevationRefused, code: 1, reason: "sudo", stays: true},
		{fault: "sudo, a foreign login shell", attribute: "elevated.sudo2", env: as("sudoer"), before: sh("usermod -s /usr/bin/fish sudoer"), want: verdict.Switched},
	})
}

// A host that is a container: its switch has a run time limit, its boot is its
// manager's, and where its boot entry fails the hint names the tool for it.
func TestContainer(t *testing.T) {
	t.Parallel()
	w, r := faultsWorldOf(t, func(target *rig.Target) { target.Container = true })
	web1 := r.Host("web1")
	limited := func(ctx context.Context) error {
		out, err := web1.Sh(ctx, "systemctl show -P RuntimeMaxUSec 'deploy-ssh-*-test.service'")
		if err == nil && strings.TrimSpace(out) != "15min" {
			err = fmt.Errorf("the switch has the run time limit %q, want 15min", out)
		}
		return err
	}
	play(t, w, web1, []row{
		{fault: "container", attribute: "slow", at: "takes its time: 2", during: limited, want: verdict.Switched},
		{fault: "container's boot loader fails", attribute: "loader-fails", want: verdict.Unfinalized, code: 1, check: func(_ context.Context, got scenario.Result) error {
			if !strings.Contains(got.Next, "tf-incus") {
				return fmt.Errorf("the hint is %q, want one that names tf-incus", got.Next)
			}
			return nil
		}},
	})
}

// Rollback and status, through the program as a person calls it.
func TestRollbackAndStatus(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	ctx := t.Context()
	call := func(args string, want int) string {
		t.Helper()
		out, err := w.Deployer.Run(ctx, "cd "+w.Flake+" && "+w.Program+" "+args)
		if err != nil {
			t.Fatal(err)
		}
		if out.Code != want {
			t.Fatalf("%s: exit code %d, want %d\n%s%s", args, out.Code, want, out.Stdout, out.Stderr)
		}
		return out.Stdout + out.Stderr
	}
	has := func(text string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%q is missing in:\n%s", word, text)
			}
		}
	}
	is := func(want string) {
		t.Helper()
		out, err := web1.Sh(ctx, `r=$(readlink -f /run/current-system); b=$(`+scenario.BootEntry+`); echo "${r##*test-} ${b##*test-} $(readlink /nix/var/nix/profiles/system)"`)
		if err != nil || strings.TrimSpace(out) != want {
			t.Errorf("the host runs, boots and has the profile %q (%v), want %q", strings.TrimSpace(out), err, want)
		}
	}
	call("rollback .#good", 1) // there is nothing before the first generation
	is("first first system-1-link")
	call(".#good --settle 0s", 0)
	call(".#other --settle 0s", 0)
	is("other other system-3-link")
	has(call("status .#other", 0), "web1  as wanted  3", "1 node as wanted")
	has(call("status .#good", 5), "drift", "runs another system; boots another system")
	has(call("rollback .#good --settle 0s", 0), "web1: going back", "3 → 2", "switched")
	is("good good system-2-link")
	has(call("rollback .#good --to 3 --settle 0s", 0), "2 → 3")
	is("other other system-3-link")
	has(call("rollback .#good --to 9 --settle 0s", 1), "no generation 9")
	// A switch that was not finished: back means to what the profile leads to.
	call(".#unit-fails --settle 0s", 4)
	is("unit-fails other system-3-link")
	has(call("status .#unit-fails --no-eval", 5), "boots another system", "failed units: fault.service", "test: ended with 4")
	call("rollback .#good --settle 0s", 0)
	is("other other system-3-link")
	call("rollback .#good --goal push", 2)
	if _, err := web1.Sh(ctx, "systemctl mask --runtime --now ssh.service"); err != nil {
		t.Fatal(err)
	}
	has(call("status .#good", 1), "unreachable", "Connection refused")
	records := call("status .#good --json --connect-timeout 2s", 1)
	if !strings.Contains(records, `"status":{`) || !strings.Contains(records, `"verdict":"unreachable"`) {
		t.Errorf("no status record:\n%s", records)
	}
}

// False successes that somebody found by trying: failures that only look old, or
// that come too late, or that can't be seen.
func TestFaultsThatHide(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	sh := func(script string) func(context.Context) error { return on(web1, script) }
	play(t, w, web1, []row{
		{fault: "good", attribute: "good", want: verdict.Switched},
		{fault: "broken", attribute: "unit-fails", want: verdict.Degraded, code: 4, reason: "fault.service"},
		{fault: "a mend that mends nothing", attribute: "broken2", want: verdict.Degraded, code: 4, reason: "fault.service"},
		{fault: "the failure wiped by hand", attribute: "broken2", before: sh("systemctl reset-failed"), want: verdict.Degraded, code: 4, reason: "fault.service"},
		{fault: "mended at last", attribute: "good", want: verdict.Switched},
		{fault: "an old failure, accepted", attribute: "old", flags: "--accept-degraded", want: verdict.Switched, note: "old.service"},
		{fault: "a late failure behind an old one", attribute: "oldDies", flags: "--settle 4s", want: verdict.Degraded, code: 4, reason: "late.service"},
		{fault: "good again", attribute: "good", want: verdict.Switched},
		{fault: "a unit that flaps", attribute: "flaps", flags: "--settle 4s", want: verdict.Degraded, code: 4, reason: "flaps.service"},
		{fault: "good after that", attribute: "good", want: verdict.Switched},
		{fault: "failed units can't be listed", attribute: "blind", flags: "--settle 4s", after: sh("chmod +x /usr/bin/systemctl"), want: verdict.Unknown, code: 3, reason: "could not be listed"},
		{fault: "seeing again", attribute: "good", want: verdict.Switched},
		{fault: "deployer killed while units settle", attribute: "dies6", flags: "--settle 8s", before: func(ctx context.Context) error {
			pid, err := start(ctx, r, "dies6 --settle 10s")
			if err == nil {
				_, err = web1.Sh(ctx, "for i in $(seq 200); do [ \"$(cat /run/current-system/nixos-version)\" = 25.11.test-dies6 ] && ls /run/deploy-ssh/*-*/test.result >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1")
			}
			if err == nil {
				_, err = r.Deployer.Sh(ctx, "kill -KILL "+pid)
			}
			return err
		}, want: verdict.Degraded, code: 4, reason: "late.service"},
		{fault: "good after the killed one", attribute: "good", want: verdict.Switched},
		{fault: "/run full at the end", attribute: "slow", at: "takes its time: 2",
			before: sh("rm -rf /run/deploy-ssh; mkdir -m 0700 /run/deploy-ssh; mount -t tmpfs -o size=256k,mode=0700 tmpfs /run/deploy-ssh"),
			during: sh("head -c 1000000 /dev/zero >/run/deploy-ssh/fill 2>/dev/null; true"), after: sh("umount /run/deploy-ssh"),
			want: verdict.Partial, code: 1, reason: "left no result"},
		{fault: "after the full /run", attribute: "slow", want: verdict.Switched},
		{fault: "rebooted while the boot entry is made", attribute: "loader-slow", at: "^finished switching\\|^the following new units\\|^setting up", during: sh("for i in $(seq 100); do ls /run/deploy-ssh/*-*/boot.log >/dev/null 2>&1 && break; sleep 0.1; done; sleep 1; systemctl reboot --force"),
			want: verdict.Rebooted, code: 1},
		{fault: "lock held longer than the limit", attribute: "other", flags: "--switch-timeout 3s", before: sh(fmt.Sprintf(hold, 604)), after: sh("kill $(pgrep -f '^sleep 604')"),
			want: verdict.Locked, code: 1, reason: "sleep 604", stays: true, check: func(ctx context.Context, _ scenario.Result) error {
				return on(web1, `[ -z "$(systemctl list-units --state=failed --plain --no-legend 'deploy-ssh-*')" ]`)(ctx)
			}},
		{fault: "nothing left behind", attribute: "good", want: verdict.Switched, check: func(ctx context.Context, _ scenario.Result) error {
			return on(web1, "ls /nix/var/nix/gcroots; ! ls /nix/var/nix/gcroots/deploy-ssh* 2>/dev/null")(ctx)
		}},
	})
}

// Boot loaders other than systemd-boot are read and proven too.
func TestBootLoaders(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	play(t, w, r.Host("web1"), []row{
		{fault: "grub", attribute: "grub", flags: "--goal switch", want: verdict.Switched},
		{fault: "grub again", attribute: "grub", flags: "--goal switch", want: verdict.Unchanged},
	})
}
