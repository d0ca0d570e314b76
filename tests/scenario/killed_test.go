package scenario_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// kills is how many moments a deploy is killed at; KILLS changes it.
func kills(t *testing.T) int {
	if text := os.Getenv("KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("KILLS=%s: a number is wanted", text)
		}
		return n
	}
	return 12
}

// start runs a deploy in the background of the deployer and returns its pid there.
// A shell starts what is in its background with SIGINT ignored, and who runs the
// tests may have had SIGHUP ignored; a person's terminal does neither.
func start(ctx context.Context, r *rig.Rig, attribute string) (string, error) {
	return startWith(ctx, r, "", attribute)
}

// startWith is start with a program in front, such as nohup.
func startWith(ctx context.Context, r *rig.Rig, wrapper, attribute string) (string, error) {
	out, err := r.Deployer.Sh(ctx, "cd "+rigworld.Flake+" && rm -f /root/run.*; setsid sh -c 'echo $$ >/root/run.pid; exec env --default-signal=INT,HUP,TERM "+wrapper+" deploy-ssh .#"+attribute+
		" --settle 0s' >/root/run.log 2>&1 </dev/null & for i in $(seq 100); do [ -s /root/run.pid ] && break; sleep 0.01; done; cat /root/run.pid")
	return strings.TrimSpace(out), err
}

// The deployer is killed at random moments of a deploy. After each, the host has
// a boot entry that boots, and the next deploy ends as wanted.
func TestDeployerKilled(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	ctx := t.Context()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	wanted := []string{"other", "good"}
	for i := range kills(t) {
		attribute := wanted[i%2]
		pid, err := start(ctx, r, attribute)
		if err != nil {
			t.Fatal(err)
		}
		moment := time.Duration(random.Int64N(int64(4500 * time.Millisecond)))
		time.Sleep(moment)
		if _, err := r.Deployer.Sh(ctx, "kill -KILL "+pid+" 2>/dev/null; true"); err != nil {
			t.Fatal(err)
		}
		if out, err := web1.Sh(ctx, `boots=$(`+scenario.BootEntry+`) && [ -x "$boots/init" ] && [ -e "$boots/nixos-version" ]`); err != nil {
			t.Fatalf("killed after %v: no entry that boots: %s%v", moment, out, err)
		}
		got, err := w.Result(ctx, attribute, "", "web1", "--settle 0s")
		if err != nil {
			t.Fatalf("killed after %v: %v", moment, err)
		}
		after := running(t, ctx, web1)
		if !got.Verdict.Good() || after != fmt.Sprintf("runs %s, boots %[1]s, lists []", got.Toplevel) {
			t.Errorf("killed after %v: the next run is %s (%s), and the host %s\n%s", moment, got.Verdict, got.Reason, after, got.Stderr)
		}
	}
}

// A signal before the switch stops everything of ours; during it, the switch is
// left alone and the result says so. Exit code 130, the rest is not started.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	ctx := t.Context()
	for _, tt := range []struct {
		name, signal, attribute string
		// until is what is waited for, on the deployer's output, before the signal.
		until string
		want  []string
		goes  bool // the switch goes on
	}{
		{"while evaluating", "INT", "good", "evaluating", []string{"interrupted"}, false},
		{"before the switch", "TERM", "bulky", "of [0-9]* paths", []string{"web1: not-started: interrupted during the copy"}, false},
		{"during the switch", "INT", "slow", "takes its time: 2", []string{"web1: unknown: interrupted; the switch was left alone", "deploy-ssh status"}, true},
		{"during the switch, twice", "INT", "slower", "takes its time: 2", nil, true},
		{"during the switch, hung up", "HUP", "slow", "takes its time: 2", []string{"web1: unknown: interrupted; the switch was left alone"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := running(t, ctx, web1)
			pid, err := start(ctx, r, tt.attribute)
			if err != nil {
				t.Fatal(err)
			}
			twice := ""
			if strings.HasSuffix(tt.name, "twice") {
				twice = "sleep 0.03; kill -" + tt.signal + " " + pid + ";"
			}
			out, err := r.Deployer.Sh(ctx, fmt.Sprintf(`for i in $(seq 600); do grep -q '%s' /root/run.log && break; sleep 0.02; done
kill -%s %s; %s for i in $(seq 300); do kill -0 %[3]s 2>/dev/null || break; sleep 0.1; done; cat /root/run.log; ls -d /tmp/deploy-ssh.* 2>/dev/null; pgrep -a ssh | grep -v sshd; true`, tt.until, tt.signal, pid, twice))
			if err != nil {
				t.Fatal(err)
			}
			for _, words := range tt.want {
				if !strings.Contains(out, words) {
					t.Errorf("the output lacks %q:\n%s", words, out)
				}
			}
			if strings.Contains(out, "/tmp/deploy-ssh.") || strings.Contains(out, "ssh -F") {
				t.Errorf("something was left behind:\n%s", out)
			}
			if !tt.goes {
				if after := running(t, ctx, web1); after != before {
					t.Errorf("the host was changed: %s, before: %s", after, before)
				}
				return
			}
			if _, err := web1.Sh(ctx, "for i in $(seq 200); do [ -e /run/deploy-ssh/*-*/test.result ] && break; sleep 0.1; done; grep -q 'exit-status 0' /run/deploy-ssh/*-*/test.result"); err != nil {
				t.Errorf("the switch did not go on to its end: %v", err)
			}
			got, err := w.Result(ctx, tt.attribute, "", "web1", "--settle 0s")
			if err != nil || got.Verdict != verdict.Switched {
				t.Errorf("the next run is %s, %v", got.Verdict, err)
			}
		})
	}
}

// With --confirm a host goes back by itself, also when the deployer is gone.
func TestConfirmWithoutDeployer(t *testing.T) {
	t.Parallel()
	_, r := faultsWorld(t)
	web1 := r.Host("web1")
	ctx := t.Context()
	before := running(t, ctx, web1)
	pid, err := start(ctx, r, "slower --confirm 3s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := web1.Sh(ctx, "for i in $(seq 300); do grep -qs 'takes its time: 3' /run/deploy-ssh/*-*/test.log && exit 0; sleep 0.1; done; exit 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Deployer.Sh(ctx, "kill -KILL "+pid); err != nil {
		t.Fatal(err)
	}
	if out, err := web1.Sh(ctx, "for i in $(seq 300); do [ -e /run/deploy-ssh/*-*/back.result ] && break; sleep 0.1; done; cat /run/deploy-ssh/*-*/back.*; grep -q 'exit-status 0' /run/deploy-ssh/*-*/back.result"); err != nil {
		t.Fatalf("the host did not go back: %v\n%s", err, out)
	}
	if after := running(t, ctx, web1); after != before {
		t.Errorf("the host %s, before: %s", after, before)
	}
}

// A deploy that nobody could confirm does not take back what a later one brought.
func TestConfirmedByALaterDeploy(t *testing.T) {
	t.Parallel()
	w, r := faultsWorld(t)
	web1 := r.Host("web1")
	ctx := t.Context()
	for first, later := range map[string]string{"slower": "slower", "slow": "good"} {
		pid, err := start(ctx, r, first+" --confirm 20s")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := web1.Sh(ctx, "for i in $(seq 300); do grep -qs 'takes its time: 5' /run/deploy-ssh/*-*/test.log && exit 0; sleep 0.1; done; exit 1"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Deployer.Sh(ctx, "kill -KILL "+pid); err != nil {
			t.Fatal(err)
		}
		got, err := w.Result(ctx, later, "", "web1", "--settle 0s")
		if err != nil || got.Verdict != verdict.Switched {
			t.Fatalf("%s is %s (%s), %v", later, got.Verdict, got.Reason, err)
		}
		// The time of the first deploy's confirmation passes.
		if out, err := web1.Sh(ctx, "for i in $(seq 400); do systemctl list-units --plain --no-legend 'deploy-ssh-*-back.service' | grep -q . || exit 0; sleep 0.1; done; exit 1"); err != nil {
			t.Fatalf("the unit that goes back is still there: %s%v", out, err)
		}
		if after := running(t, ctx, web1); after != fmt.Sprintf("runs %s, boots %[1]s, lists []", got.Toplevel) {
			t.Errorf("after the time of the earlier deploy the host %s, want %s", after, got.Toplevel)
		}
		if _, err := web1.Sh(ctx, "rm -rf /run/deploy-ssh/*-*"); err != nil {
			t.Fatal(err)
		}
	}
}

// Who started the program with a signal ignored meant it.
func TestNohup(t *testing.T) {
	t.Parallel()
	_, r := faultsWorld(t)
	ctx := t.Context()
	pid, err := startWith(ctx, r, "nohup", "slower")
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Deployer.Sh(ctx, fmt.Sprintf(`for i in $(seq 600); do grep -q 'takes its time: 2' /root/run.log && break; sleep 0.02; done
kill -HUP %s; for i in $(seq 300); do kill -0 %[1]s 2>/dev/null || break; sleep 0.1; done; cat /root/run.log`, pid))
	if err != nil || !strings.Contains(out, "1 node as wanted") {
		t.Errorf("a deploy under nohup was ended by a hang-up: %v\n%s", err, out)
	}
}
