package scenario_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/packages"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// The map is a file of its own beside the systems, so that a test can change it.
const planFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      node = name: port: toplevel: { inherit name toplevel; host = name; ssh.options = [ "Port=${toString port}" ]; };
      first = toplevels.mkToplevel { name = "first"; };
      next = toplevels.mkToplevel { name = "next"; web.page = "next\n"; payload.incompressible = 3000000; };
      other = toplevels.mkToplevel { name = "other"; web.page = "other\n"; };
      web1 = node "web1" 2201 next;
      web2 = node "web2" 2202 first;
      closed = node "closed" 1 next // { host = "web1"; };
      broken = node "broken" 2201 (derivation { name = "broken"; system = builtins.currentSystem or "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "exit 3" ]; });
      thrown = node "thrown" 2201 (throw "no such system");
    in {
      inherit first;
      nodes = [ web1 web2 ];
      all = [ web1 web2 closed ];
      elsewhere = [ (web1 // { toplevel = other; }) web2 ];
      bad = [ broken thrown ];
    };
}
`

// planWorld is two hosts that run and boot the first system.
func planWorld(t *testing.T) *planner {
	r := rig.Start(t, rig.Config{Targets: []rig.Target{rigworld.Target("web1", 2201), rigworld.Target("web2", 2202)}})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), planFlake); err != nil {
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
		if err := h.Reboot(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return &planner{t: t, r: r, web1: r.Host("web1"), web2: r.Host("web2"), first: first}
}

type planner struct {
	t          *testing.T
	r          *rig.Rig
	web1, web2 *rig.Host
	first      string
}

// sh runs a script on a host, which must go well.
func (w *planner) sh(h *rig.Host, script string) string {
	w.t.Helper()
	out, err := h.Sh(w.t.Context(), script)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// call runs the program on the deployer.
func (w *planner) call(args string, want int) rig.Result {
	w.t.Helper()
	result, err := w.r.Deployer.Run(w.t.Context(), rig.Cmd{Args: []string{"/bin/bash", "-c", "deploy-ssh " + args}, Dir: rigworld.Flake})
	if err != nil {
		w.t.Fatal(err)
	}
	if result.Code != want {
		w.t.Fatalf("%s: exit code %d, want %d\n%s%s", args, result.Code, want, result.Stdout, result.Stderr)
	}
	return result
}

// records are those of a call with --json.
func (w *planner) records(args string, want int) []report.Record {
	w.t.Helper()
	result := w.call(args+" --json", want)
	var all []report.Record
	for line := range strings.Lines(result.Stdout) {
		var r report.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			w.t.Fatalf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

func (w *planner) plans(args string, want int) map[string]report.Planned {
	w.t.Helper()
	all := map[string]report.Planned{}
	for _, r := range w.records("plan "+args, want) {
		if r.Planned != nil {
			all[r.Planned.Node] = *r.Planned
		}
	}
	return all
}

func (w *planner) results(args string, want int) map[string]report.Result {
	w.t.Helper()
	all := map[string]report.Result{}
	for _, r := range w.records(args, want) {
		if r.Result != nil {
			all[r.Result.Node] = *r.Result
		}
	}
	return all
}

// state lists what of a host a deploy would change, and what it would leave behind.
func (w *planner) state(h *rig.Host) string {
	w.t.Helper()
	return w.sh(h, `cd /; ls -1 /nix/store | sort; ls -lR --time-style=full-iso /nix/var/nix/profiles /nix/var/nix/gcroots
readlink -f /run/current-system; ls -la --time-style=full-iso /run/nixos 2>/dev/null; find /run -maxdepth 1 -name 'deploy-ssh*' -print; find /run/deploy-ssh 2>/dev/null | sort
find /boot -type f | sort | xargs md5sum; find /tmp /root -name '*deploy*'`)
}

func has(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

// A plan tells what an apply would do and touches nothing; an apply of it does that,
// and only on hosts that have not moved since.
func TestPlan(t *testing.T) {
	t.Parallel()
	w := planWorld(t)
	web1, web2 := w.state(w.web1), w.state(w.web2)

	plans := w.plans(".#all --out all.plan", verdict.ExitFailed)
	t.Run("changed", func(t *testing.T) {
		p := plans["web1"]
		if p.Verdict != "" || fmt.Sprint(p.Actions) != "[copy activate boot-entry]" || !p.Built || p.NextGeneration != 2 {
			t.Errorf("web1 is planned as %q %v, built %v, generation %d", p.Verdict, p.Actions, p.Built, p.NextGeneration)
		}
		if p.Now == nil || p.Now.Running != w.first || p.Now.Label == "" || p.Now.BootID == "" || p.Now.MachineID == "" || p.WantedLabel == "" {
			t.Errorf("web1 is seen as %+v, wanted label %q", p.Now, p.WantedLabel)
		}
		if p.Copy == nil || p.Copy.Missing == 0 || p.Copy.NarBytes < 3_000_000 || p.Copy.Missing > p.Copy.Paths {
			t.Errorf("to copy: %+v", p.Copy)
		}
		if p.Size == nil || p.Size.After-p.Size.Before < 2_900_000 || p.Size.Before <= 0 {
			t.Errorf("sizes: %+v", p.Size)
		}
		if p.Space == nil || p.Space.StoreFree <= 0 || p.Space.StoreNeeds != p.Copy.NarBytes {
			t.Errorf("space: %+v", p.Space)
		}
		if p.Packages == nil || len(p.Packages.Added)+len(p.Packages.Changed) == 0 {
			t.Errorf("packages: %+v", p.Packages)
		}
		t.Logf("packages: %+v; reboot for %v", p.Packages, p.NeedsReboot)
	})
	t.Run("unchanged", func(t *testing.T) {
		if p := plans["web2"]; p.Verdict != verdict.Unchanged || len(p.Actions) > 0 || p.Now == nil || p.Copy != nil {
			t.Errorf("web2 is planned as %+v", p)
		}
	})
	t.Run("unreachable", func(t *testing.T) {
		if p := plans["closed"]; p.Verdict != verdict.Unreachable || p.Now != nil || !strings.Contains(p.Reason, "refused") {
			t.Errorf("closed is planned as %+v", p)
		}
	})
	if now := w.state(w.web1); now != web1 {
		t.Errorf("the plan left something on web1:\n%s\nbefore:\n%s", now, web1)
	}
	if now := w.state(w.web2); now != web2 {
		t.Errorf("the plan left something on web2")
	}
	_ = packages.Changes{}

	text := w.call("plan .#all", verdict.ExitFailed)
	t.Logf("%s", text.Stdout)
	has(t, text.Stdout, "web1 (root@web1): copy, activate, make the boot entry", "generation  1 → 2", "closed", "unreachable", "1 of 3 nodes would change, 1 as wanted")
	for line := range strings.Lines(text.Stdout) {
		if len([]rune(line)) > 81 && len(strings.Fields(line)) > 2 {
			t.Errorf("longer than 80 columns: %q", line)
		}
	}
}
