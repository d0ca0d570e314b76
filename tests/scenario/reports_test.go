package scenario_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// The nodes change with files beside the flake: web2's system is faulty, or web2 is
// no longer a node.
const reportsFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      node = name: toplevel: { inherit name toplevel; host = name; };
      first = toplevels.mkToplevel { name = "first"; };
      good = toplevels.mkToplevel { name = "good"; };
      faulty = toplevels.mkToplevel { name = "faulty"; faults.activate = "fails"; };
      web2 = node "web2" (if builtins.pathExists ./faulty then faulty else good);
    in {
      inherit first;
      nodes = [ (node "web1" good) ] ++ (if builtins.pathExists ./without then [ ] else [ web2 ]);
      slow = [ (node "web1" (toplevels.mkToplevel { name = "slow"; faults.activateSeconds = 3; })) (node "web2" first) ];
      # The nodes have no systems of their own.
      all = { nodes = [ { name = "web1"; } { name = "web2"; } ]; combined = toplevels.mkToplevel { name = "all"; }; };
      broken = { nodes = [ { name = "web1"; } ]; combined = throw "no such system"; };
    };
}
`

// What runs leave on record, and what is made of it.
func TestReports(t *testing.T) {
	t.Parallel()
	r := rig.Start(t, rig.Config{Targets: []rig.Target{rigworld.Target("web1", 22), rigworld.Target("web2", 22)}})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), reportsFlake); err != nil {
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
	call := func(code int, command string) (stdout, stderr string) {
		t.Helper()
		result, err := r.Deployer.Run(ctx, rig.Cmd{Args: []string{"/bin/bash", "-c", command}, Dir: rigworld.Flake})
		if err != nil {
			t.Fatal(err)
		}
		if result.Code != code {
			t.Errorf("%s: exit code %d, want %d\n%s%s", command, result.Code, code, result.Stdout, result.Stderr)
		}
		return result.Stdout, result.Stderr
	}
	// deploy is the nodes and their verdicts of a deploy, in order.
	deploy := func(code int, command string) (nodes string, stderr string) {
		t.Helper()
		out, stderr := call(code, command+" --settle 0s --json")
		var got []string
		for line := range strings.Lines(out) {
			var record report.Record
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if record.Result != nil {
				got = append(got, fmt.Sprintf("%s %s", record.Result.Node, record.Result.Verdict))
			}
		}
		return strings.Join(got, ", "), stderr
	}
	want := func(got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	contains := func(text string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%q is not in:\n%s", word, text)
			}
		}
	}

	_, errs := call(2, "deploy-ssh .#nodes --retry-failed")
	contains(errs, "no run of this map by apply is on record in /root/.local/state/deploy-ssh")

	nodes, _ := deploy(verdict.ExitFailed, "touch faulty; deploy-ssh .#nodes")
	want(nodes, "web1 switched, web2 activation-failed")
	files, _ := call(0, "stat -c '%a %F' /root/.local/state/deploy-ssh/* /root/.local/state/deploy-ssh; ls /root/.local/state/deploy-ssh | grep -c 'jsonl$'")
	want(files, "600 regular file\n700 directory\n1\n")
	shown, _ := call(0, "deploy-ssh report; deploy-ssh report --list")
	contains(shown, "web1  switched ", "web2  activation-failed", "1 of 2 nodes as wanted", "1 of 2 as wanted")

	// A run that changes nothing is no word on the hosts, and one of web1 none on web2.
	nodes, _ = deploy(0, "rm faulty; deploy-ssh .#nodes --goal build")
	want(nodes, "web1 staged, web2 staged")
	nodes, _ = deploy(0, "deploy-ssh .#nodes --on web1")
	want(nodes, "web1 unchanged")
	nodes, _ = deploy(0, "deploy-ssh .#nodes --retry-failed --on web1")
	want(nodes, "")
	_, errs = call(0, "touch without; deploy-ssh .#nodes --retry-failed; rm without")
	contains(errs, "no longer in the map: web2 (activation-failed)", "nothing to retry")
	nodes, _ = deploy(0, "cd toplevels && deploy-ssh ..#nodes --retry-failed")
	want(nodes, "web2 switched")
	_, errs = call(0, "deploy-ssh .#nodes --retry-failed")
	contains(errs, "nothing to retry")

	// A deployer that is killed leaves what it knew.
	call(0, `deploy-ssh .#slow --settle 0s >/root/out 2>&1 & pid=$!
		for i in $(seq 300); do grep -q 'takes its time: 1' /root/out && break; sleep 0.1; done
		deploy-ssh .#slow --retry-failed 2>/root/going; echo $? >>/root/going; kill -KILL $pid; wait $pid; true`)
	going, _ := call(0, "cat /root/going")
	contains(going, "a run of this map is under way", "\n2\n")
	shown, _ = call(0, "deploy-ssh report")
	contains(shown, "web1  unknown ", "web2  not-started", "the run was cut off")
	nodes, _ = deploy(0, "deploy-ssh .#slow --retry-failed")
	want(nodes, "web1 switched, web2 switched")

	// One system of all nodes goes to the first, and is on record by itself.
	before, err := r.Host("web2").Sh(ctx, "readlink -f /run/current-system")
	if err != nil {
		t.Fatal(err)
	}
	nodes, _ = deploy(0, "deploy-ssh .#all --combined")
	want(nodes, "web1 switched")
	shown, errs = call(0, "deploy-ssh .#all --combined; deploy-ssh exec .#all --combined -- uname -n; deploy-ssh status .#all --combined")
	contains(errs, "combined: one system of all 2 nodes goes to web1, the first", "the system of all nodes, to root@web1")
	contains(shown, "web1  unchanged ", "web1 | web1\n", "web1  as wanted")
	after, err := r.Host("web2").Sh(ctx, "readlink -f /run/current-system")
	if err != nil || after != before {
		t.Errorf("web2 runs %s, and ran %s (%v)", after, before, err)
	}
	_, errs = call(2, "deploy-ssh .#all")
	contains(errs, "the node has no `toplevel`")
	_, errs = call(2, "deploy-ssh .#nodes --combined")
	contains(errs, "the map has no `combined`")
	nodes, _ = deploy(verdict.ExitFailed, "deploy-ssh .#broken --combined")
	want(nodes, "web1 eval-failed")
	call(0, "deploy-ssh plan .#all --combined --out /root/all.plan && deploy-ssh apply --plan /root/all.plan")
	_, errs = call(2, "deploy-ssh .#all --retry-failed")
	contains(errs, "no run of this map by apply is on record")

	// No place for a report is no reason not to deploy.
	nodes, errs = deploy(0, "deploy-ssh .#slow --report /dev/null/x")
	want(nodes, "web1 switched, web2 unchanged")
	contains(errs, "warning: this run leaves no report: ")
	call(0, "n=$(ls /root/.local/state/deploy-ssh | wc -l); deploy-ssh .#slow --no-report && [ $n = $(ls /root/.local/state/deploy-ssh | wc -l) ]")
}
