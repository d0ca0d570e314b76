package cli

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
)

// thousand is a map with everything that a node can have.
const thousand = `{ nodes = let names = builtins.genList (i: "node-${toString i}") 1000; in {
  order = names;
  defaults.ssh = { user = "deploy"; options = [ "Port=2222" "ServerAliveInterval=5" ]; };
  nodes = builtins.listToAttrs (map (name: { inherit name; value = {
    toplevel = system name {}; host = "${name}.example.org"; tags = [ "eu" "all" ]; elevate = "sudo";
    ignoreUnits = [ "backup-*" ]; ssh.options = [ "Port=2201" "ProxyCommand=nc %h %p" ];
    ssh.hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAeSTrPt2ByS4ek2PVJ8VMD7Ng7VvHEDK1nqbzB7vWkZ"; }; }) names);
}; }`

// heavy are twenty nodes whose systems take some seconds to evaluate together.
const heavy = `{ nodes = builtins.genList (i: {
  name = "node-${toString i}";
  toplevel = system "node-${toString i}-${toString (builtins.foldl' (a: b: (a * 31 + b) - (a * 31 + b) / 65537 * 65537) i (builtins.genList (n: n) 1000000))}" {};
}) 20; }`

// program is the program as it is released, with a store of its own.
type program struct {
	path  string
	store nixtest.Store
}

func newProgram(b *testing.B) program {
	b.Helper()
	p := program{filepath.Join(b.TempDir(), "deploy-ssh"), nixtest.New(b)}
	if out, err := exec.Command("go", "build", "-o", p.path, "github.com/deploy-ssh/deploy-ssh/cmd/deploy-ssh").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return p
}

// run runs it and returns its standard output and the most memory, in MiB, that it or
// one of its children had.
func (p program) run(b *testing.B, args ...string) (string, float64) {
	b.Helper()
	cmd := exec.Command(p.path, args...)
	cmd.Env, cmd.Dir = p.store.Runner.Env, p.store.Runner.Dir
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%q: %v\n%s", args, err, errs.String())
	}
	return string(out), float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024
}

// A map of a thousand nodes: what a person waits for. The memory is that of the
// largest process, which is Nix where it evaluates.
func BenchmarkThousandNodes(b *testing.B) {
	p := newProgram(b)
	ref := p.store.Flake(b, thousand) + "#nodes"
	for _, bench := range []struct {
		name string
		args []string
	}{
		{"schema", []string{"schema"}},
		{"explain one, evaluated", []string{"explain", ref, "node-500", "--no-eval-cache"}},
		{"explain one, cached", []string{"explain", ref, "node-500"}},
		{"explain all, cached", []string{"explain", ref}},
		{"check one, cached", []string{"check", ref, "node-500"}},
		{"build one, cached", []string{ref, "--on", "node-500", "--goal", "build"}},
		{"build all, cached", []string{ref, "--goal", "build", "-p", "8"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			p.run(b, bench.args...) // what is to be cached
			most := 0.0
			for b.Loop() {
				_, mib := p.run(b, bench.args...)
				most = max(most, mib)
			}
			b.ReportMetric(most, "MiB")
		})
	}
}

// An unchanged flake: the evaluation of its repeated run, as part of the first one's.
func BenchmarkUnchangedFlake(b *testing.B) {
	p := newProgram(b)
	ref := p.store.Flake(b, heavy) + "#nodes"
	evaluation := func() report.Phase {
		b.Helper()
		out, _ := p.run(b, ref, "--goal", "build", "--json")
		for line := range strings.Lines(out) {
			var r report.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				b.Fatal(err)
			}
			if r.Phase != nil && r.Phase.Name == report.Evaluate {
				return *r.Phase
			}
		}
		b.Fatal("no record of the evaluation")
		return report.Phase{}
	}
	first := evaluation()
	repeated, runs := 0.0, 0
	for b.Loop() {
		again := evaluation()
		if again.Cache != "hit" {
			b.Fatalf("the cache is a %s", again.Cache)
		}
		repeated += again.Seconds
		runs++
	}
	repeated /= float64(runs)
	b.ReportMetric(first.Seconds, "s-first")
	b.ReportMetric(repeated, "s-repeated")
	b.ReportMetric(repeated/first.Seconds, "ratio")
}
