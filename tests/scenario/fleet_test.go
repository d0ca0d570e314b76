package scenario_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

const fiveFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      faults = import ./toplevels/examples-of-faults.nix toplevels;
      node = name: toplevel: { inherit name toplevel; host = name; };
      first = toplevels.mkToplevel { name = "first"; };
      good = node "good" (toplevels.mkToplevel { name = "good"; });
      failing = node "failing" faults.unit-fails;
      closed = node "closed" first // { host = "good"; ssh.options = [ "Port=1" ]; };
    in {
      inherit first;
      nodes = [ good failing closed (node "changed" first) (node "already" first) ];
      unreachable = [ good closed ];
      degraded = [ good failing ];
    };
}
`

// Five nodes with five outcomes, however the output is taken: input order in the
// table, JSON that parses, no escape codes, the exit code of the table.
func TestFleetOfFive(t *testing.T) {
	t.Parallel()
	names := []string{"good", "failing", "changed", "already"}
	var targets []rig.Target
	for _, name := range names {
		targets = append(targets, rigworld.Target(name, 22))
	}
	r := rig.Start(t, rig.Config{Targets: targets})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), fiveFlake); err != nil {
		t.Fatal(err)
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Targets {
		if err := rigworld.Install(ctx, r, h, first); err != nil {
			t.Fatal(err)
		}
	}
	// A saved key of another host stands for changed.
	if _, err := r.Deployer.Sh(ctx, "ssh-keygen -q -t ed25519 -N '' -f /root/foreign && mkdir -p -m 0700 /tmp/deploy-ssh-0 && echo \"changed $(cut -d' ' -f1,2 /root/foreign.pub)\" >/tmp/deploy-ssh-0/known_hosts && chmod 600 /tmp/deploy-ssh-0/known_hosts"); err != nil {
		t.Fatal(err)
	}
	want := map[string]verdict.Verdict{"good": verdict.Switched, "failing": verdict.Degraded, "closed": verdict.Unreachable, "changed": verdict.HostKeyRefused, "already": verdict.Unchanged}
	order := []string{"good", "failing", "closed", "changed", "already"}
	call := func(command string) (string, string, int) {
		t.Helper()
		result, err := r.Deployer.Run(ctx, rig.Cmd{Args: []string{"/bin/bash", "-c", command}, Dir: rigworld.Flake})
		if err != nil {
			t.Fatal(err)
		}
		return result.Stdout, result.Stderr, result.Code
	}
	check := func(what, out string, code int) {
		t.Helper()
		if code != verdict.ExitFailed {
			t.Errorf("%s: exit code %d, want 1", what, code)
		}
		if strings.ContainsRune(out, '\x1b') {
			t.Errorf("%s: an escape code in the output:\n%q", what, out)
		}
	}
	out, errs, code := call("deploy-ssh .#nodes --settle 0.5s --json")
	check("--json", out+errs, code)
	var seen []string
	for line := range strings.Lines(out) {
		var record report.Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if record.Result != nil {
			seen = append(seen, record.Result.Node)
			if got := record.Result.Verdict; got != want[record.Result.Node] {
				t.Errorf("%s is %s (%s), want %s", record.Result.Node, got, record.Result.Reason, want[record.Result.Node])
			}
		}
	}
	if fmt.Sprint(seen) != fmt.Sprint(order) {
		t.Errorf("the results are of %v, want %v", seen, order)
	}
	out, errs, code = call("TERM=dumb deploy-ssh .#nodes --settle 0.5s")
	check("text", out+errs, code)
	last := -1
	for _, name := range order {
		at := strings.Index(out, "\n"+name+" ")
		if at <= last {
			t.Errorf("%s is not in its place in the table:\n%s", name, out)
		}
		last = at
	}
	_, errs, code = call("deploy-ssh .#nodes --settle 0.5s >&-")
	check("standard output closed", errs, code)
	_, errs, code = call("deploy-ssh .#nodes --settle 0.5s --json >/dev/full")
	check("standard output full", errs, code)
	_, errs, code = call("set -o pipefail; deploy-ssh .#nodes --settle 0.5s --json | head -1")
	check("read by head", errs, code)
	out, _, code = call("deploy-ssh .#nodes --on 'good,al*' --exclude already --settle 0s")
	if code != verdict.ExitGood || !strings.Contains(out, "good  ") || strings.Contains(out, "already") || !strings.Contains(out, "1 node as wanted") {
		t.Errorf("--on and --exclude: exit code %d\n%s", code, out)
	}
	if _, errs, code := call("deploy-ssh .#nodes --on goood"); code != verdict.ExitUsage || !strings.Contains(errs, "good") {
		t.Errorf("--on with an unknown name: exit code %d\n%s", code, errs)
	}
	if _, _, code := call("deploy-ssh .#unreachable --settle 0s"); code != verdict.ExitFailed {
		t.Errorf("one node unreachable: exit code %d, want 1", code)
	}
	if _, _, code := call("deploy-ssh .#degraded --settle 0.5s"); code != verdict.ExitDegraded {
		t.Errorf("one node degraded: exit code %d, want 4", code)
	}
}
