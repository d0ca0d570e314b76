package scenario_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// givenFlake has systems to build, and a map whose own systems don't evaluate.
const givenFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      fresh = n: toplevels.mkToplevel { name = "new-${toString n}"; payload.incompressible = 2000000 + n; };
    in
    {
      first = toplevels.mkToplevel { name = "first"; };
      new = builtins.genList fresh 8;
      nodes = [ { name = "n1"; toplevel = abort "n1"; } { name = "n2"; toplevel = abort "n2"; } ];
    };
}
`

// givenWorld is a deployer, three hosts and a host with a binary cache.
type givenWorld struct {
	*identities
	hosts []*rig.Host
	ways  []*rig.Relay // to the hosts, in their order
	cache *rig.Host
	new   []string // systems that no host has, each with a path of two megabytes
}

func newGivenWorld(t *testing.T) *givenWorld {
	t.Helper()
	r := rig.Start(t, rig.Config{Suite: os.Getenv("RIG_SUITE"), Targets: []rig.Target{
		rigworld.Target("n1", 22), rigworld.Target("n2", 22), rigworld.Target("n3", 22), {Name: "cache"},
	}})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), givenFlake); err != nil {
		t.Fatal(err)
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err != nil {
		t.Fatal(err)
	}
	w := &givenWorld{identities: &identities{rig: r}, hosts: r.Targets[:3], cache: r.Host("cache")}
	for _, h := range w.hosts {
		if err := rigworld.Install(ctx, r, h, first); err != nil {
			t.Fatal(err)
		}
		relay, err := r.Relay(ctx, h, 22, rig.LinkSpec{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = relay.Close() })
		w.ways = append(w.ways, relay)
	}
	built := w.sh(t, r.Deployer, "cd "+rigworld.Flake+` && nix eval --raw --impure --expr 'toString (map (s: s.drvPath) (builtins.getFlake (toString ./.)).new)' | xargs nix-store --realise`)
	w.new = strings.Fields(built)
	// The program's Nix, which writes down its arguments.
	w.write(t, r.Deployer, "/root/bin/nix", `#!/bin/sh
echo "$*" >>/root/nix-calls
exec /usr/bin/nix "$@"
`, 0o755)
	return w
}

// environment is the environment's map with ways to the hosts, and with more settings
// for the last of them.
func (w *givenWorld) environment(t *testing.T, more map[string]any) string {
	t.Helper()
	nodes := map[string]map[string]any{}
	for i, h := range w.hosts {
		nodes[h.Name] = map[string]any{
			"host": w.ways[i].Addr, "hostKey": h.HostKey, "options": []string{fmt.Sprint("Port=", w.ways[i].Port)},
		}
	}
	maps.Copy(nodes["n3"], more)
	text, err := json.Marshal(map[string]any{"nodes": nodes})
	if err != nil {
		t.Fatal(err)
	}
	return "DEPLOY_SSH_NODES='" + string(text) + "'"
}

// apply deploys one system to nodes, without a flake.
func (w *givenWorld) apply(t *testing.T, toplevel, nodes string, flags ...string) outcome {
	t.Helper()
	args := []string{"apply --json --settle 0s"}
	for _, name := range strings.Fields(nodes) {
		args = append(args, "--store-path "+name+"="+toplevel)
	}
	return w.program(t, w.environment(t, nil), strings.Join(append(args, flags...), " ")).read(t)
}

// sent is how many bytes have gone to each of the hosts since it was called last.
func (w *givenWorld) sent(before []int64) []int64 {
	var all []int64
	for i, relay := range w.ways {
		n := relay.Sent()
		if before != nil {
			n -= before[i]
		}
		all = append(all, n)
	}
	return all
}

// Systems that are there already, with the ways to the hosts from the environment.
func TestStorePath(t *testing.T) {
	t.Parallel()
	w := newGivenWorld(t)
	t.Run("without a flake", func(t *testing.T) {
		o := w.apply(t, w.new[0], "n2 n1", "--on n1")
		o.want(t, "n1", verdict.Switched)
		if len(o.results) != 1 || o.Code != 0 {
			t.Errorf("exit code %d, results %+v\n%s", o.Code, o.results, o.Stderr)
		}
		contract(t, o)
		if calls := w.sh(t, w.rig.Deployer, "cat /root/nix-calls"); strings.Contains(calls, "eval") || !strings.Contains(calls, "path-info") {
			t.Errorf("Nix was called with\n%s", calls)
		}
		o = w.apply(t, w.new[0], "n2 n1", "--on n1,n2 --goal push")
		o.want(t, "n1", verdict.Staged)
		o.want(t, "n2", verdict.Staged)
		if planned := o.records[1].Plan; planned == nil || fmt.Sprint(planned.Nodes) != "[n2 n1]" {
			t.Errorf("planned %+v, want the order of the flags", planned)
		}
		o = w.apply(t, w.new[0], "n1")
		o.want(t, "n1", verdict.Unchanged)
	})
	t.Run("as a user with sudo", func(t *testing.T) {
		w.sh(t, w.hosts[2], `useradd -m -s /bin/bash ann && cp -r /root/.ssh /home/ann/ && chown -R ann /home/ann/.ssh &&
echo 'ann ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ann && chmod 440 /etc/sudoers.d/ann`)
		args := "apply --json --settle 0s --store-path n3=" + w.new[0]
		o := w.program(t, w.environment(t, map[string]any{"user": "ann"}), args).read(t)
		o.want(t, "n3", verdict.Unusable)
		o = w.program(t, w.environment(t, map[string]any{"user": "ann", "elevate": "sudo"}), args).read(t)
		o.want(t, "n3", verdict.Switched)
	})
	t.Run("beside a flake", func(t *testing.T) {
		w.sh(t, w.rig.Deployer, "ln -sfn "+w.new[1]+" /root/fleet/result")
		o := w.program(t, w.environment(t, nil), "'.#nodes' --json --settle 0s --on n1 --store-path n1=result")
		if o.Code != verdict.ExitUsage || !strings.Contains(o.Stderr, "DEPLOY_SSH_NODES nodes.n3: the flake has no such node") {
			t.Errorf("a node that the flake doesn't know: exit code %d\n%s", o.Code, o.Stderr)
		}
		env := fmt.Sprintf(`DEPLOY_SSH_NODES='{"nodes":{"n1":{"host":"%s","options":["Port=%d"]}}}'`, w.ways[0].Addr, w.ways[0].Port)
		o = w.program(t, env, "'.#nodes' --json --settle 0s --store-path n1=result").read(t)
		o.want(t, "n1", verdict.Switched)
		o.want(t, "n2", verdict.EvalFailed, "n2")
		if got := o.results["n1"].To; got == nil || got.Running != w.new[1] {
			t.Errorf("n1 runs %+v, want %s", got, w.new[1])
		}
	})
	t.Run("a path that isn't there", func(t *testing.T) {
		o := w.program(t, w.environment(t, nil), "apply --store-path n1=/nix/store/11111111111111111111111111111111-nixos-system-x")
		if o.Code != verdict.ExitUsage || !strings.Contains(o.Stderr, "is not valid in this machine's store") {
			t.Errorf("exit code %d\n%s", o.Code, o.Stderr)
		}
	})
	t.Run("via a cache", func(t *testing.T) { w.viaCache(t) })
}

// contract checks what a front-end reads of a run for one node: each record by its
// name, in order, and the fields of docs/json.md that it can rely on.
func contract(t *testing.T, o outcome) {
	t.Helper()
	var kinds []string
	for line := range strings.Lines(o.Stdout) {
		var record map[string]map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil || len(record) != 1 {
			t.Fatalf("line %q: %v", line, err)
		}
		for kind, fields := range record {
			if kind == "progress" {
				continue
			}
			if name, ok := fields["name"]; ok {
				kind += " " + name.(string)
			}
			kinds = append(kinds, kind)
			var want string
			switch kind {
			case "run":
				want = "protocol version time source"
			case "result":
				want = "time node verdict class hostChanged meaning toplevel from to seconds"
			case "summary":
				want = "time exitCode failed seconds"
			}
			for _, field := range strings.Fields(want) {
				if _, ok := fields[field]; !ok {
					t.Errorf("the %s record lacks %q: %s", kind, field, line)
				}
			}
		}
	}
	if got, want := strings.Join(kinds, ", "), "run, plan, phase build, announce, phase connect, phase probe, phase copy, phase switch, phase finalize, result, summary"; got != want {
		t.Errorf("the records are\n%s, want\n%s", got, want)
	}
	if run := o.records[0].Run; run.Protocol != report.Protocol || run.Source != "DEPLOY_SSH_NODES" {
		t.Errorf("the run is %+v", run)
	}
}
