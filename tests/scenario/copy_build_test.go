package scenario_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// Systems that the hosts build themselves, from derivations that the engine copies; on
// each generation of Nix.
func TestBuildOnTarget(t *testing.T) {
	t.Parallel()
	for _, suite := range []string{"bookworm", "trixie", "forky"} {
		t.Run(suite, func(t *testing.T) {
			w := copyWorld(t, suite)
			there := func(t *testing.T, attribute, settings string, flags ...string) outcome {
				t.Helper()
				return w.deploy(t, attribute, settings, append(flags, "--build-on-target")...)
			}
			o := there(t, "good", "")
			o.want(t, "web1", verdict.Switched)
			c := o.byCache(t)
			if c.Missing == 0 || c.FromHere != c.Missing {
				t.Errorf("counted %+v, want all derivations from here", c)
			}
			toplevel := o.results["web1"].Toplevel
			if out := w.sh(t, w.rig.Deployer, "nix-store --check-validity "+toplevel+" 2>/dev/null && echo there; true"); out != "" {
				t.Error("the deployer has the system, which was to be built on the host")
			}
			if built := o.phase(report.Build); built == nil || built.Node != "web1" || !strings.Contains(built.Detail, "built on the host") {
				t.Errorf("no phase says that the host built: %+v", built)
			}
			there(t, "good", "").want(t, "web1", verdict.Unchanged)

			o = there(t, "unbuildable", "")
			o.want(t, "web1", verdict.BuildFailed, "as asked for")
			if reason := o.results["web1"].Reason; !strings.HasPrefix(reason, "error:") {
				t.Errorf("the reason does not begin with Nix's words:\n%s", reason)
			}
			// The result stays until somebody activates it.
			o = there(t, "other", "", "--goal push")
			o.want(t, "web1", verdict.Staged)
			w.sh(t, w.web1, "nix-collect-garbage >/dev/null 2>&1; nix-store --check-validity "+o.results["web1"].Toplevel)
			if left := w.sh(t, w.web1, "ls /nix/var/nix/gcroots/deploy-ssh-copy; ls -d /run/deploy-ssh-copy.* 2>/dev/null; true"); !strings.Contains(left, "last") || strings.Contains(left, "/run/") {
				t.Errorf("left on the host: %q", left)
			}
			if suite != "trixie" {
				return
			}
			t.Run("a bare store path", func(t *testing.T) {
				w.write(t, w.rig.Deployer, rigworld.Flake+"/pushed", w.build(t, "new.20"), 0o644)
				o := there(t, "pushed", "", "--goal push")
				o.want(t, "web1", verdict.Staged)
				o.byCache(t)
			})
			t.Run("an untrusted user", func(t *testing.T) {
				// Derivations need no signature, their name tells their content.
				w.sh(t, w.web1, `useradd -m -s /bin/bash plain && mkdir -p /home/plain/.ssh && cp /root/.ssh/authorized_keys /home/plain/.ssh/ && chown -R plain /home/plain/.ssh && chmod 700 /home/plain/.ssh
systemd-run -q --unit=nix-daemon nix-daemon`)
				o := there(t, "new.21", settingsOf(map[string]any{"user": "plain"}), "--goal push")
				o.want(t, "web1", verdict.Staged)
				o.byNix(t, "does not trust the user plain")
			})
			t.Run("no forward", func(t *testing.T) {
				port := w.ownSSHD(t, w.web1, "AllowTcpForwarding no\n")
				o := there(t, "new.22", options("web1", fmt.Sprint("Port=", port)), "--goal push")
				o.want(t, "web1", verdict.Staged)
				o.byNix(t, "forward")
			})
			t.Run("the line is cut", func(t *testing.T) {
				relay, err := w.rig.Relay(t.Context(), w.web1, 22, rig.LinkSpec{})
				if err != nil {
					t.Fatal(err)
				}
				defer relay.Close()
				cut := make(chan error, 1)
				go func() {
					// The builder is at work, for the first time.
					_, err := w.web1.Sh(t.Context(), "until [ -e /root/slow-build ]; do sleep 0.05; done; touch /root/slow-build.seen")
					relay.Cut(false)
					cut <- err
				}()
				o := there(t, "slow", relayed(relay), "--goal push -L")
				if err := <-cut; err != nil {
					t.Fatal(err)
				}
				o.want(t, "web1", verdict.Staged)
				if n := strings.TrimSpace(w.sh(t, w.web1, "wc -l </root/slow-build")); n != "2" {
					t.Errorf("the builder was started %s times, want 2", n)
				}
				if !strings.Contains(o.Stdout, "slow at work") {
					t.Errorf("the builder's output was not passed on:\n%s", o.Stdout)
				}
			})
		})
	}
}

// Links on the deployer keep what was built.
func TestKeepResult(t *testing.T) {
	t.Parallel()
	w := copyWorld(t, "trixie")
	d := w.rig.Deployer
	o := w.deploy(t, "both", "", "--goal build --keep-result")
	o.want(t, "web1", verdict.Staged)
	for _, name := range []string{"web1", "web2"} {
		if got := strings.TrimSpace(w.sh(t, d, "readlink "+rigworld.Flake+"/result-"+name)); got != o.results[name].Toplevel {
			t.Errorf("result-%s leads to %q, want %s", name, got, o.results[name].Toplevel)
		}
	}
	// A link is replaced, in a folder that is made when there is none.
	for _, attribute := range []string{"both", "good"} {
		o = w.deploy(t, attribute, "", "--goal build --keep-result=/srv/kept/here")
		o.want(t, "web1", verdict.Staged)
	}
	w.sh(t, d, "nix-collect-garbage >/dev/null 2>&1; nix-store --check-validity $(readlink "+rigworld.Flake+"/result-web2) $(readlink /srv/kept/here/result-web1)")
	if got := strings.TrimSpace(w.sh(t, d, "readlink /srv/kept/here/result-web1")); got != o.results["web1"].Toplevel {
		t.Errorf("it leads to %q, want %s", got, o.results["web1"].Toplevel)
	}
	// Nothing else is.
	w.sh(t, d, "mkdir -p /srv/taken/result-web1")
	p := w.program(t, "", ".#good --goal build --keep-result=/srv/taken")
	if p.Code == 0 || !strings.Contains(p.Stderr, "/srv/taken/result-web1") {
		t.Errorf("exit code %d: %s", p.Code, p.Stderr)
	}
	for _, flags := range []string{"--build-on-target --goal build", "--build-on-target --keep-result"} {
		if p := w.program(t, "", ".#good "+flags); p.Code != 2 {
			t.Errorf("%s: exit code %d: %s", flags, p.Code, p.Stderr)
		}
	}
}
