package scenario

import (
	"context"
	"fmt"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// a step of a story on one target: something is broken, a system is deployed, and
// the verdict must be the true one.
type step struct {
	what string
	// attribute is the map that is deployed; env and flags are the call's.
	attribute, env, flags string
	// before and after are scripts on the host around the deploy.
	before, after string
	// during is a script on the host, run once the switch's log has the text at.
	at, during string
	want       verdict.Verdict
	code       int
	// stays says that the host runs and boots what it did before.
	stays bool
}

// tell plays the steps on a target, one after the other.
func (w World) tell(ctx context.Context, t Target, steps []step) error {
	for _, s := range steps {
		if err := w.step(ctx, t, s); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

func (w World) step(ctx context.Context, t Target, s step) error {
	before, err := state(ctx, t)
	if err != nil {
		return err
	}
	if s.before != "" {
		if _, err := say(ctx, t, s.before); err != nil {
			return err
		}
	}
	during := make(chan error, 1)
	if s.during == "" {
		during <- nil
	} else {
		// An earlier run's log would pass for this one's.
		if _, err := say(ctx, t, "rm -rf /run/deploy-ssh/*-*"); err != nil {
			return err
		}
		go func() {
			_, err := say(ctx, t, fmt.Sprintf("for i in $(seq 600); do grep -aqs -e '%s' /run/deploy-ssh/*-*/*.log && break; sleep 0.1; done; %s", s.at, s.during))
			during <- err
		}()
	}
	got, err := w.Result(ctx, s.attribute, s.env, t.Node, "--settle 0.5s", s.flags)
	if broke := <-during; broke != nil {
		return fmt.Errorf("during the switch: %w", broke)
	}
	if err != nil {
		return err
	}
	if s.after != "" {
		if _, err := say(ctx, t, s.after); err != nil {
			return fmt.Errorf("mending it: %w", err)
		}
	}
	if got.Verdict != s.want || got.Code != s.code {
		return fmt.Errorf("%s (%s), exit code %d; want %s, exit code %d\n%s", got.Verdict, got.Reason, got.Code, s.want, s.code, got.Stderr)
	}
	after, err := state(ctx, t)
	if err != nil {
		return err
	}
	if s.stays && after != before {
		return fmt.Errorf("the host was changed: %s, before: %s", after, before)
	}
	whole := fmt.Sprintf("runs %s, boots %[1]s, lists []", got.Toplevel)
	if got.Verdict == verdict.Switched && after != whole {
		return fmt.Errorf("a false success: %s of %s, but the host %s", got.Verdict, got.Toplevel, after)
	}
	return nil
}

// state is what a host runs and boots, read without the program.
func state(ctx context.Context, t Target) (string, error) {
	return say(ctx, t, `printf 'runs %s, boots %s, lists [%s]' "$(readlink -f /run/current-system)" "$(`+BootEntry+`)" "$(ls /run/nixos 2>/dev/null | grep -- -list)"`)
}

// hold is a script by which somebody else holds the lock for some seconds.
func hold(seconds int) string {
	return fmt.Sprintf(`mkdir -p /run/nixos; setsid flock /run/nixos/switch-to-configuration.lock sleep %d >/dev/null 2>&1 </dev/null &
for i in $(seq 50); do [ -e /run/nixos/switch-to-configuration.lock ] && ! flock -n /run/nixos/switch-to-configuration.lock true && exit 0; sleep 0.1; done; exit 1`, seconds)
}

const (
	busDead = "systemctl stop dbus.socket dbus.service"
	busBack = "systemctl start dbus.socket dbus.service; systemctl restart systemd-logind.service"

	// On NixOS all units are in /etc/systemd/system, which wins over what
	// `systemctl mask --runtime` makes; this folder wins over both.
	maskLogind = `d=/run/systemd/system.control; mkdir -p $d
for unit in systemd-logind dbus-org.freedesktop.login1; do ln -s /dev/null $d/$unit.service; done
systemctl daemon-reload; systemctl stop systemd-logind.service`
	unmaskLogind = `rm /run/systemd/system.control/systemd-logind.service /run/systemd/system.control/dbus-org.freedesktop.login1.service
systemctl daemon-reload; systemctl start systemd-logind.service`
)

// Recovery breaks the first target from outside in each way that the seed of the
// method names. Each break is got through or reported, and the deploy after it is
// whole.
//
// Maps: good and other; blocked, with a unit whose start job hangs; hangs, whose
// activation does; slow, whose activation prints "takes its time: N" each second.
func Recovery(ctx context.Context, w World) error {
	return w.tell(ctx, w.Targets[0], []step{
		{what: "a blocked start job", attribute: "blocked", flags: "--switch-timeout 8s", want: verdict.TimedOut, code: 1},
		{what: "after the blocked start job", attribute: "good", want: verdict.Switched},
		{what: "a switch that can't be scheduled", attribute: "other",
			before: "mkdir -p /run/systemd/transient; mount --bind /run/systemd/transient /run/systemd/transient && mount -o remount,bind,ro /run/systemd/transient",
			after:  "umount /run/systemd/transient", want: verdict.Unscheduled, code: 1, stays: true},
		{what: "a hanging transient unit", attribute: "hangs", flags: "--switch-timeout 4s", want: verdict.TimedOut, code: 1},
		{what: "after the hanging transient unit", attribute: "good", want: verdict.Switched},
		{what: "a dead bus", attribute: "other", before: busDead, after: busBack, want: verdict.ActivationFailed, code: 1, stays: true},
		{what: "after the dead bus", attribute: "other", want: verdict.Switched},
		{what: "a dead login manager", attribute: "good",
			before: maskLogind, after: unmaskLogind,
			want: verdict.Partial, code: 1},
		{what: "after the dead login manager", attribute: "good", want: verdict.Switched},
		{what: "a login manager that is stuck for a while", attribute: "slow", at: "takes its time: 2",
			during: "pid=$(systemctl show -P MainPID systemd-logind.service); kill -STOP $pid; sleep 9; kill -CONT $pid", want: verdict.Switched},
		{what: "a held lock, beyond the retry budget", attribute: "other", flags: "--lock-attempts 3 --lock-interval 0.2s",
			before: hold(600), after: "kill $(pgrep -f '^sleep 600')", want: verdict.Locked, code: 1, stays: true},
		{what: "a held lock, within the retry budget", attribute: "other", before: hold(4), want: verdict.Switched},
	})
}

// Verdicts deploys systems to the first target that go wrong by themselves.
//
// Maps: good and other; unitFails, activateFails, checkFails (a pre-switch check)
// and loaderFails, each a system with that fault.
func Verdicts(ctx context.Context, w World) error {
	return w.tell(ctx, w.Targets[0], []step{
		{what: "a good system", attribute: "good", want: verdict.Switched},
		{what: "the same again", attribute: "good", want: verdict.Unchanged, stays: true},
		{what: "a unit fails", attribute: "unitFails", want: verdict.Degraded, code: 4},
		{what: "a failed unit, accepted", attribute: "unitFails", flags: "--accept-degraded", want: verdict.Switched},
		{what: "the activation fails", attribute: "activateFails", want: verdict.ActivationFailed, code: 1},
		{what: "after the failed activation", attribute: "good", want: verdict.Switched},
		{what: "a pre-switch check fails", attribute: "checkFails", want: verdict.Refused, code: 1, stays: true},
		{what: "the boot loader fails", attribute: "loaderFails", want: verdict.Unfinalized, code: 1},
		{what: "after the failed boot loader", attribute: "good", want: verdict.Switched},
		{what: "a dry run", attribute: "other", flags: "--goal dry-activate", want: verdict.Staged, stays: true},
		{what: "a boot entry only", attribute: "other", flags: "--goal boot", want: verdict.Staged},
		{what: "and then the switch", attribute: "other", want: verdict.Switched},
	})
}

// Elevation logs in to the first target as a user who is not root.
//
// The host has the users sudoer and doer, whose keys are restricted and whose
// rules, for sudo and for doas, are those of the NixOS module; and plain, who has
// none. Maps: good and other; sudo and doas, which elevate so.
func Elevation(ctx context.Context, w World) error {
	as := func(user string) string { return "DEPLOY_SSH_USER=" + user }
	return w.tell(ctx, w.Targets[0], []step{
		{what: "as root", attribute: "good", want: verdict.Switched},
		{what: "by sudo", attribute: "sudo", env: as("sudoer"), want: verdict.Switched},
		{what: "by sudo again", attribute: "sudo", env: as("sudoer"), want: verdict.Unchanged, stays: true},
		{what: "by sudo without a rule", attribute: "sudo", env: as("plain"), want: verdict.ElevationRefused, code: 1, stays: true},
		{what: "without elevation", attribute: "good", env: as("sudoer"), want: verdict.Unusable, code: 1, stays: true},
		{what: "by doas", attribute: "doas", env: as("doer"), want: verdict.Switched},
		{what: "by doas without a rule", attribute: "doas", env: as("plain"), want: verdict.ElevationRefused, code: 1, stays: true},
	})
}

// now is a moment of a host's journal.
func now(ctx context.Context, m Machine) (string, error) {
	return say(ctx, m, "journalctl --sync; date +%s.%N")
}

// logged counts lines of a host's sshd since then.
func logged(ctx context.Context, m Machine, since, pattern string) (string, error) {
	return say(ctx, m, fmt.Sprintf("journalctl --sync; journalctl -t sshd -t sshd-session -t sshd-auth --since @%s -o cat | grep -cE '%s'; true", since, pattern))
}
