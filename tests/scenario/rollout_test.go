package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// rolloutFlake has twenty nodes: sixteen hosts, of which eight are behind a jump host, one
// has a frozen sshd and one a switch that fails; and four that are closed.
const rolloutFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      faults = import ./toplevels/examples-of-faults.nix toplevels;
      system = name: toplevels.mkToplevel { inherit name; };
      slow = toplevels.mkToplevel { name = "slow"; faults.activateSeconds = 4; };
      node = toplevel: name: { inherit name toplevel; host = name; };
      jumped = toplevel: name: node toplevel name // { ssh.options = [ "ProxyJump=gate" ]; };
      closed = port: node first "c${toString port}" // { host = "h1"; ssh.options = [ "Port=${toString port}" ]; };
      first = system "first";
      second = system "second";
      third = system "third";
      fourth = system "fourth";
    in {
      inherit first;
      all = [ (node second "h1") (closed 1) (node second "silent") (node second "h2") (node faults.activate-fails "fails") (closed 2) ]
        ++ map (jumped second) [ "j1" "j2" "j3" ] ++ map (jumped first) [ "j4" "j5" "j6" "j7" "j8" ]
        ++ map (node first) [ "h3" "h4" "h5" "h6" ] ++ [ (closed 3) (closed 4) ];
      few = [ (closed 1) ] ++ map (node third) [ "h1" "h2" "h3" "h4" ];
      canary = [ (node faults.activate-fails "fails") ] ++ map (node third) [ "h1" "h2" ];
      three = map (node fourth) [ "h1" "h2" "h3" ];
      waiting = [ (node slow "h4") (node third "h5") (node third "h6") ];
    };
}
`

// rolloutWorld is the rig of all tests of a rollout.
type rolloutWorld struct {
	*rig.Rig
}

// call runs the program and returns its records.
func (w rolloutWorld) call(t *testing.T, command string) ([]report.Record, string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	result, err := w.Deployer.Run(ctx, rig.Cmd{Args: []string{"/bin/bash", "-c", command + " --json"}, Dir: rigworld.Flake})
	if err != nil {
		t.Fatal(err)
	}
	var records []report.Record
	for line := range strings.Lines(result.Stdout) {
		var record report.Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%q: %v\n%s", line, err, result.Stderr)
		}
		records = append(records, record)
	}
	return records, result.Stderr, result.Code
}

// outcomes are the results among records, as "node verdict", in their order.
func outcomes(records []report.Record) (words []string, by map[string]report.Result) {
	by = map[string]report.Result{}
	for _, r := range records {
		if r.Result != nil {
			words = append(words, r.Result.Node+" "+string(r.Result.Verdict))
			by[r.Result.Node] = *r.Result
		}
	}
	return words, by
}

func TestRollout(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	names := strings.Fields("h1 h2 h3 h4 h5 h6 j1 j2 j3 j4 j5 j6 j7 j8 silent fails")
	targets := []rig.Target{{Name: "gate", SSHConfig: "MaxStartups 2\nLogLevel VERBOSE\n"}}
	for _, name := range names {
		targets = append(targets, rigworld.Target(name, 22))
	}
	r := rig.Start(t, rig.Config{Targets: targets})
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), rolloutFlake); err != nil {
		t.Fatal(err)
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err != nil {
		t.Fatal(err)
	}
	installs := pool.New().WithErrors().WithMaxGoroutines(4)
	for _, name := range names {
		installs.Go(func() error { return rigworld.Install(ctx, r, r.Host(name), first) })
	}
	if err := installs.Wait(); err != nil {
		t.Fatal(err)
	}
	w := rolloutWorld{r}
	t.Run("the rest of twenty", w.restOfTwenty)
	t.Run("max failures", w.maxFailures)
	t.Run("canary", w.canary)
	t.Run("lockstep", w.lockstep)
	t.Run("looked at again", w.lookedAtAgain)
	t.Run("interrupted pause", w.interruptedPause)
}

// A jump host that lets in two at once, a host that never answers, one whose switch
// fails and some that are closed: the others are deployed all the same.
func (w rolloutWorld) restOfTwenty(t *testing.T) {
	ctx := t.Context()
	if _, err := w.Host("silent").Sh(ctx, "kill -STOP $(systemctl show -P MainPID ssh)"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = w.Host("silent").Sh(ctx, "kill -CONT $(systemctl show -P MainPID ssh)") }()
	records, errs, code := w.call(t, "deploy-ssh .#all -p 6 --settle 0s --connect-timeout 4s")
	want := strings.Split("h1 switched,c1 unreachable,silent unreachable,h2 switched,fails activation-failed,c2 unreachable,"+
		"j1 switched,j2 switched,j3 switched,j4 unchanged,j5 unchanged,j6 unchanged,j7 unchanged,j8 unchanged,"+
		"h3 unchanged,h4 unchanged,h5 unchanged,h6 unchanged,c3 unreachable,c4 unreachable", ",")
	got, by := outcomes(records)
	if !slices.Equal(got, want) || code != verdict.ExitFailed {
		t.Errorf("exit code %d, results\n%q, want\n%q\n%s", code, got, want, errs)
		for _, result := range by {
			if !result.Verdict.Good() {
				t.Logf("%s: %s", result.Node, result.Reason)
			}
		}
	}
	// Without a refusal this would have been no test.
	if n, err := w.Host("gate").Sh(ctx, "journalctl --sync; journalctl -u ssh -o cat | grep -c -e MaxStartups -e 'drop connection'"); err != nil {
		t.Errorf("the jump host has refused nobody: %s, %v", n, err)
	}
	last := records[len(records)-1].Summary
	if last == nil || len(last.FailedBy) != 2 || fmt.Sprint(last.FailedBy[0]) != "{unreachable [c1 silent c2 c3 c4]}" {
		t.Errorf("the summary is %+v", last)
	}
	// And again, for people: one paragraph names all that could not be reached.
	out, err := w.Deployer.Run(ctx, rig.Cmd{Args: []string{"/bin/bash", "-c", "deploy-ssh .#all -p 20 --settle 0s --connect-timeout 4s"}, Dir: rigworld.Flake})
	if err != nil || !strings.Contains(out.Stdout, "\nunreachable: c1, silent, c2, c3, c4\n") || !strings.Contains(out.Stdout, "14 of 20 nodes as wanted") {
		t.Errorf("%v\n%s\n%s", err, out.Stdout, out.Stderr)
	}
}

// Once more nodes have failed than may, those under way end and no other begins.
func (w rolloutWorld) maxFailures(t *testing.T) {
	records, errs, code := w.call(t, "deploy-ssh .#few -p 2 --max-failures 10% --settle 0s")
	got, by := outcomes(records)
	want := []string{"c1 unreachable", "h1 switched", "h2 not-started", "h3 not-started", "h4 not-started"}
	if !slices.Equal(got, want) || code != verdict.ExitFailed {
		t.Errorf("exit code %d, results %q, want %q\n%s", code, got, want, errs)
	}
	if reason := by["h4"].Reason; reason != "--max-failures 10%: 1 of 5 nodes have failed (c1)" {
		t.Errorf("h4: %q", reason)
	}
}

// Behind a canary that fails nobody is as much as contacted.
func (w rolloutWorld) canary(t *testing.T) {
	ctx := t.Context()
	since, err := w.Host("h2").Sh(ctx, "date +%s.%N")
	if err != nil {
		t.Fatal(err)
	}
	records, errs, code := w.call(t, "deploy-ssh .#canary --canary 1 -p 3 --settle 0s")
	got, by := outcomes(records)
	if want := []string{"fails activation-failed", "h1 not-started", "h2 not-started"}; !slices.Equal(got, want) || code != verdict.ExitFailed {
		t.Errorf("exit code %d, results %q, want %q\n%s", code, got, want, errs)
	}
	if reason := by["h2"].Reason; reason != "--canary 1: the canary fails is activation-failed" {
		t.Errorf("h2: %q", reason)
	}
	if n, err := w.Host("h2").Sh(ctx, "journalctl --sync; journalctl -u ssh --since @"+strings.TrimSpace(since)+" -o cat | grep -c 'Accepted publickey'; true"); err != nil || strings.TrimSpace(n) != "0" {
		t.Errorf("h2 saw %s logins, %v", n, err)
	}
}

// In lockstep no node begins a phase before the one before is over everywhere.
func (w rolloutWorld) lockstep(t *testing.T) {
	records, errs, code := w.call(t, "deploy-ssh .#three --strategy lockstep -p 2 --settle 0s")
	got, _ := outcomes(records)
	if code != verdict.ExitGood || len(got) != 3 {
		t.Fatalf("exit code %d, results %q\n%s", code, got, errs)
	}
	phases := []report.PhaseName{report.Connect, report.Probe, report.Copy, report.Switch, report.Finalize}
	ended := map[report.PhaseName]int{}
	for _, r := range records {
		if r.Phase == nil || r.Phase.Node == "" {
			continue
		}
		for _, before := range phases[:slices.Index(phases, r.Phase.Name)] {
			if ended[before] != 3 {
				t.Errorf("%s of %s while %s was over on %d of 3 nodes", r.Phase.Name, r.Phase.Node, before, ended[before])
			}
		}
		ended[r.Phase.Name]++
	}
	if ended[report.Finalize] != 3 {
		t.Errorf("phases that ended: %v", ended)
	}
}

// A look that has grown old before the node's turn is taken again, on the same
// connection; one whose connection is gone, over a new one.
func (w rolloutWorld) lookedAtAgain(t *testing.T) {
	ctx := t.Context()
	killed := make(chan error, 1)
	go func() {
		// h6 has been looked at, and h4's activation goes on.
		_, err := w.Deployer.Sh(ctx, `for i in $(seq 400); do
  pid=$(pgrep -f 'ssh -F .*ControlMaster=yes .* h6$') && [ -S "$(dirname "$(tr '\0' '\n' </proc/$pid/cmdline | sed -n 3p)")/ctl" ] && sleep 1 && kill "$pid" && exit 0
  sleep 0.05; done; exit 1`)
		killed <- err
	}()
	since, err := w.Host("h5").Sh(ctx, "date +%s.%N")
	if err != nil {
		t.Fatal(err)
	}
	records, errs, code := w.call(t, "deploy-ssh .#waiting --probe-age 1s --settle 0s")
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	got, by := outcomes(records)
	if want := []string{"h4 switched", "h5 switched", "h6 switched"}; !slices.Equal(got, want) || code != verdict.ExitGood {
		t.Fatalf("exit code %d, results %q, want %q\n%s", code, got, want, errs)
	}
	if notes := strings.Join(by["h5"].Notes, "\n"); !strings.Contains(notes, "looked at again: the first look was") || strings.Contains(notes, "lost") {
		t.Errorf("h5: %q", notes)
	}
	if notes := strings.Join(by["h6"].Notes, "\n"); !strings.Contains(notes, "the connection was lost before the node's turn") {
		t.Errorf("h6: %q", notes)
	}
	// One for everything, and the fresh login after the activation.
	if n, err := w.Host("h5").Sh(ctx, "journalctl --sync; journalctl -u ssh --since @"+strings.TrimSpace(since)+" -o cat | grep -c 'Accepted publickey'; true"); err != nil || strings.TrimSpace(n) != "2" {
		t.Errorf("h5 saw %s logins, want 2; %v", n, err)
	}
	// What was done ahead of a node's turn shows in its turn.
	turn := ""
	for _, r := range records {
		switch {
		case r.Announce != nil:
			turn = r.Announce.Node
		case r.Phase != nil && r.Phase.Node != "" && r.Phase.Node != turn:
			t.Errorf("%s of %s in the turn of %s", r.Phase.Name, r.Phase.Node, turn)
		}
	}
}

// A pause is named, and an interrupt ends it.
func (w rolloutWorld) interruptedPause(t *testing.T) {
	out, err := w.Deployer.Run(t.Context(), rig.Cmd{Args: []string{"/bin/bash", "-c", `env --default-signal=INT deploy-ssh .#three --pause 1h --settle 0s >/root/paused 2>&1 &
for i in $(seq 400); do grep -q 'waiting 1h0m0s before h2' /root/paused && break; sleep 0.05; done
kill -INT $!; wait $!; code=$?; cat /root/paused; exit $code`}, Dir: rigworld.Flake})
	if err != nil {
		t.Fatal(err)
	}
	if out.Code != verdict.ExitInterrupted || !strings.Contains(out.Stdout, "(--pause)") || !strings.Contains(out.Stdout, "\nnot-started: h2, h3\n") {
		t.Errorf("exit code %d\n%s", out.Code, out.Stdout)
	}
}
