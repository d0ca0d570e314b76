package scenario_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
)

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
		{fault: "a user who logs out during the switch", attribute: "other", env: as("root"), before: func(ctx context.Context) error {
			_, err := r.Deployer.Sh(ctx, "(ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p 2201 plain@web1 sleep 3 >/dev/null 2>&1 </dev/null &)")
			if err == nil {
				_, err = web1.Sh(ctx, "for i in $(seq 100); do pgrep -u plain sleep >/dev/null && break; sleep 0.1; done; systemctl stop user@$(id -u plain).service")
			}
			return err
		}, want: verdict.Switched, check: func(_ context.Context, got scenario.Result) error {
			if log := strings.Join(got.HostLines, "\n"); !strings.Contains(log, "trying once more in 12 s") {
				return fmt.Errorf("the user's activation did not fail at first:\n%s", log)
			}
			return nil
		}},
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
	// What a goal does not bring about is not said.
	has(call(".#other --goal build", 0), "the build of nixos-system-", " for root@web1", "1 node built")
	has(call(".#good --goal dry-activate", 0), "dry-activating nixos-system-", " on root@web1", "1 node dry-activated")
	has(call("rollback .#good --goal dry-activate", 0), "dry-activating an earlier generation on root@web1", "1 node dry-activated")
	has(call("report --list", 0), "1 of 1 dry-activated", "1 of 1 built", "1 of 1 as wanted")
	is("other other system-3-link")
	if _, err := web1.Sh(ctx, "systemctl mask --runtime --now ssh.service"); err != nil {
		t.Fatal(err)
	}
	has(call("status .#good", 1), "unreachable", "Connection refused")
	records := call("status .#good --json --connect-timeout 2s", 1)
	if !strings.Contains(records, `"status":{`) || !strings.Contains(records, `"verdict":"unreachable"`) {
		t.Errorf("no status record:\n%s", records)
	}
}
