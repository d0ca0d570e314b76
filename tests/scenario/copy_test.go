package scenario_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/bulk"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// copyFlake has systems to switch to, and maps of closures that are only pushed: their
// paths are in a file.
const copyFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      fresh = n: toplevels.mkToplevel { name = "new-${toString n}"; payload.incompressible = 500000 + n; };
      node = toplevel: { name = "web1"; host = "web1"; inherit toplevel; };
    in
    {
      first = toplevels.mkToplevel { name = "first"; };
      good = [ (node (toplevels.mkToplevel { name = "good"; })) ];
      other = [ (node (toplevels.mkToplevel { name = "other"; })) ];
      # Systems that no host has seen, each with a path of half a megabyte: too much to go
      # in one command. The little ones differ in a page.
      new = builtins.listToAttrs (builtins.genList (n: { name = toString n; value = [ (node (fresh n)) ]; }) 30);
      little = builtins.listToAttrs (builtins.genList (n: { name = toString n; value = [ (node (toplevels.mkToplevel { name = "little-${toString n}"; etc."page".text = "${toString n}"; })) ]; }) 10);
      sudo = { defaults.elevate = "sudo"; nodes = [ (node (fresh 40)) ]; };
      both = [ (node (fresh 41)) { name = "web2"; host = "web2"; toplevel = fresh 42; } ];
      newkernel = [ (node (toplevels.mkToplevel { name = "newkernel"; kernel = "6.13.2"; })) ];
      unbuildable = [ (node (toplevels.mkToplevel { name = "broken"; faults.build = "fails"; })) ];
      # Its builder takes its time when it is started for the first time.
      slow = [
        (node (derivation {
          name = "nixos-system-slow";
          system = builtins.currentSystem or "x86_64-linux";
          builder = "/bin/sh";
          args = [ "-c" "PATH=/usr/bin:/bin; echo slow at work; echo >>/root/slow-build; [ $(wc -l </root/slow-build) -gt 1 ] || sleep 60; mkdir -p $out/bin; touch $out/nixos-version $out/bin/switch-to-configuration" ];
        }))
      ];
      pushed = [ (node (builtins.readFile ./pushed)) ];
    };
}
`

// copyWorld is a deployer and web1, which runs and boots the system first.
func copyWorld(t *testing.T, suite string, targets ...rig.Target) *identities {
	t.Helper()
	r := rig.Start(t, rig.Config{Suite: suite, Targets: append([]rig.Target{rigworld.Target("web1", 22)}, targets...)})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), copyFlake); err != nil {
		t.Fatal(err)
	}
	w := &identities{rig: r, web1: r.Host("web1"), sshd: 4000}
	w.write(t, r.Deployer, rigworld.Flake+"/pushed", "/nix/store/none", 0o644)
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err != nil {
		t.Fatal(err)
	}
	if err := rigworld.Install(ctx, r, w.web1, first); err != nil {
		t.Fatal(err)
	}
	return w
}

// bulk makes a large closure the one that the map pushed brings to web1.
func (w *identities) bulk(t *testing.T, s bulk.Spec) string {
	t.Helper()
	toplevel, err := bulk.Build(t.Context(), w.rig.Deployer, s)
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, w.rig.Deployer, rigworld.Flake+"/pushed", toplevel, 0o644)
	return toplevel
}

// copied is what the copy phase of web1 counted; nil when nothing was sent.
func (o outcome) copied() *report.Copied {
	for _, r := range o.records {
		if r.Phase != nil && r.Phase.Name == report.Copy {
			return r.Phase.Copied
		}
	}
	return nil
}

// phase is the last record of a phase; nil when there is none.
func (o outcome) phase(name report.PhaseName) (last *report.Phase) {
	for _, r := range o.records {
		if r.Phase != nil && r.Phase.Name == name {
			last = r.Phase
		}
	}
	return last
}

// byCache checks that the deployer's cache did the copy, and returns its counts.
func (o outcome) byCache(t *testing.T) report.Copied {
	t.Helper()
	c := o.copied()
	if c == nil {
		t.Fatalf("no copy was counted: %+v\n%s", o.results, o.Stderr)
	}
	if c.By != "cache" {
		t.Errorf("copied by %q (%s), want the cache", c.By, c.Why)
	}
	return *c
}

// direct checks that all that was missing was sent in one command, and returns the counts.
func (o outcome) direct(t *testing.T) report.Copied {
	t.Helper()
	c := o.copied()
	if c == nil {
		t.Fatalf("no copy was counted: %+v\n%s", o.results, o.Stderr)
	}
	if c.By != "direct" || c.Missing == 0 || c.FromHere != c.Missing || c.FromCaches != 0 || c.NarBytes != c.MissingBytes || c.WireBytes == 0 || c.Tries != 1 {
		t.Errorf("counted %+v, want all from here in one command: %+v", c, o.phase(report.Copy))
	}
	return *c
}

// relayed are settings that reach web1 over a relay.
func relayed(relay *rig.Relay, options ...string) string {
	options = append(options, fmt.Sprint("Port=", relay.Port))
	text, _ := json.Marshal(map[string]any{"nodes": map[string]any{"web1": map[string]any{"host": relay.Addr, "options": options}}})
	return string(text)
}

// The engine on each generation of Nix, OpenSSH and systemd, with zstd and without. The
// rigs are used for what else differs between those.
func TestCopySuites(t *testing.T) {
	t.Parallel()
	for _, suite := range []string{"bookworm", "trixie", "forky"} {
		t.Run(suite, func(t *testing.T) {
			w := copyWorld(t, suite)
			o := w.deploy(t, "good", "")
			o.want(t, "web1", verdict.Switched)
			if c := o.direct(t); c.WireBytes >= c.NarBytes {
				t.Errorf("counted %+v, want fewer bytes on the line", c)
			}
			o = w.deploy(t, "other", "", "--compress none")
			o.want(t, "web1", verdict.Switched)
			if c := o.direct(t); c.WireBytes <= c.NarBytes {
				t.Errorf("counted %+v, want what is not compressed", c)
			}
			o = w.deploy(t, "other", "")
			o.want(t, "web1", verdict.Unchanged)
			if o.copied() != nil {
				t.Errorf("an unchanged closure was copied: %+v", o.copied())
			}
			if left := w.sh(t, w.web1, "ls -d /run/deploy-ssh-copy.* /root/.cache/nix 2>/dev/null; ls /nix/var/nix/gcroots/deploy-ssh-copy"); strings.TrimSpace(left) != "" {
				t.Errorf("left on the host: %q", left)
			}
			o = w.deploy(t, "new.0", "", "--goal push --compress none")
			o.want(t, "web1", verdict.Staged)
			c := o.byCache(t)
			if c.Missing == 0 || c.FromHere != c.Missing || c.FromCaches != 0 || c.WireBytes == 0 || c.Tries != 1 {
				t.Errorf("counted %+v", c)
			}
			w.bulk(t, bulk.Spec{Name: "bulk", Paths: 100, MiB: 20})
			o = w.deploy(t, "pushed", "", "--goal push")
			o.want(t, "web1", verdict.Staged)
			c = o.byCache(t)
			if c.FromHere != 101 || c.WireBytes*2 > c.NarBytes {
				t.Errorf("counted %+v, want 101 paths in at most half of their bytes", c)
			}
			t.Logf("%+v", c)
			t.Run("kept evaluations", func(t *testing.T) { keptEvaluations(t, w) })
		})
	}
}
