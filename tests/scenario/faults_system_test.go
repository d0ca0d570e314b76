package scenario_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
)

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
		{fault: "an old failure, accepted again", attribute: "old", flags: "--accept-degraded", want: verdict.Switched},
		{fault: "a failed activation behind an old failure", attribute: "oldActivate", want: verdict.ActivationFailed, code: 1, reason: "Failed to run activate script"},
		{fault: "good again", attribute: "good", want: verdict.Switched},
		{fault: "boot entry first", attribute: "broken2", flags: "--goal boot", want: verdict.Staged},
		{fault: "then an activation that fails", attribute: "broken2", want: verdict.Degraded, code: 4, reason: "fault.service", note: "a reboot starts the wanted system"},
		{fault: "and is no better when looked at again", attribute: "broken2", want: verdict.Degraded, code: 4, reason: "fault.service"},
		{fault: "good once more", attribute: "good", want: verdict.Switched},
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
			// The result has a page of its own; the boot entry's run has none to begin with.
			want: verdict.Unfinalized, code: 1, reason: "No space left on device"},
		{fault: "after the full /run", attribute: "slow", want: verdict.Switched},
		{fault: "rebooted while the boot entry is made", attribute: "loader-slow", at: "^finished switching\\|^the following new units\\|^setting up", during: sh("for i in $(seq 100); do ls /run/deploy-ssh/*-*/boot.log >/dev/null 2>&1 && break; sleep 0.1; done; sleep 1; systemctl reboot --force"),
			want: verdict.Rebooted, code: 1},
		{fault: "lock held longer than the limit", attribute: "other", flags: "--switch-timeout 3s", before: sh(fmt.Sprintf(hold, 604)), after: sh("kill $(pgrep -f '^sleep 604')"),
			want: verdict.Locked, code: 1, reason: "sleep 604", stays: true, check: func(ctx context.Context, _ scenario.Result) error {
				return on(web1, `[ -z "$(systemctl list-units --state=failed --plain --no-legend 'deploy-ssh-*')" ]`)(ctx)
			}},
		{fault: "nothing left behind", attribute: "good", want: verdict.Switched, check: func(ctx context.Context, _ scenario.Result) error {
			return on(web1, `! ls -d /nix/var/nix/gcroots/deploy-ssh-2* 2>/dev/null`)(ctx)
		}},
	})
}

// Boot loaders other than systemd-boot are read and proven too.
func TestBootLoaders(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	fresh := on(web1, "rm -rf /boot/*")
	rollback := func(want verdict.Verdict, code int) func(context.Context, scenario.Result) error {
		return func(ctx context.Context, _ scenario.Result) error {
			out, err := w.Deployer.Run(ctx, "cd "+w.Flake+" && "+w.Program+" rollback .#good --settle 0s")
			if err == nil && (out.Code != code || !strings.Contains(out.Stdout, string(want))) {
				err = fmt.Errorf("rollback: exit code %d, want %d and %s\n%s%s", out.Code, code, want, out.Stdout, out.Stderr)
			}
			return err
		}
	}
	play(t, w, web1, []row{
		{fault: "grub", attribute: "grub", before: fresh, want: verdict.Switched},
		{fault: "grub again", attribute: "grub", want: verdict.Unchanged},
		{fault: "back with grub", attribute: "grub", flags: "--goal switch", want: verdict.Unchanged, check: rollback(verdict.Switched, 0)},
		{fault: "extlinux", attribute: "extlinux", before: fresh, want: verdict.Switched},
		{fault: "extlinux again", attribute: "extlinux", want: verdict.Unchanged},
		{fault: "boot counting", attribute: "counting", before: fresh, want: verdict.Switched},
		{fault: "boot counting again", attribute: "counting", want: verdict.Unchanged},
		// With counting the newest generation is started, whatever the default was meant
		// to be: going back runs the old system and boots the new one, and that is said.
		{fault: "back with boot counting", attribute: "counting", flags: "--goal switch", want: verdict.Unchanged, check: rollback(verdict.Unfinalized, 1)},
	})
}
