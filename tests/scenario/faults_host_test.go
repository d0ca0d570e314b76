package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

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
			want: verdict.CopyFailed, code: 1, reason: "Read-only file system", stays: true},
		{fault: "run folder not writable", attribute: "good", before: sh("rm -rf /run/deploy-ssh; mkdir /run/deploy-ssh; mount --bind -o ro /run/deploy-ssh /run/deploy-ssh && mount -o remount,bind,ro /run/deploy-ssh"), after: sh("umount /run/deploy-ssh"),
			want: verdict.Unscheduled, code: 1, reason: "Read-only file system", stays: true},
		{fault: "at last", attribute: "good", want: verdict.Switched},
	})
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
			want: verdict.Switched, note: "slow login"},
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
			want: verdict.CopyFailed, code: 1, reason: "2.1 MB free", stays: true},
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
		{fault: "another deploy while units settle", attribute: "other", flags: "--settle 12s", at: "^restarting sysinit-reactivation",
			during: on(r.Deployer, "sleep 2; cd "+rigworld.Flake+" && deploy-ssh .#good --settle 0s"), want: verdict.Superseded, code: 1, reason: "neither the wanted system nor the one before"},
		{fault: "another deploy of the same system", attribute: "slow", before: behind("slow"), after: ended, want: verdict.Switched, note: "was followed"},
		{fault: "good", attribute: "good", want: verdict.Switched},
		// The later one has the last word, and waits for the first to end.
		{fault: "another deploy of another system", attribute: "other", before: behind("slow"), want: verdict.Switched},
	})
}
