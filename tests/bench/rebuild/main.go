// Rebuild measures a deploy beside what nixos-rebuild does to a remote host, over the
// same links and on the same host, in turns: connections, bytes, round trips and time
// of a change of one path and of no change at all. Evaluation and build are left out.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/tests/bench/stage"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

//go:embed rebuild.sh
var script string

// Each map has one node; the systems differ in one page, so that a switch from one to
// the other copies one path beside those that name it.
const flakeText = `{ outputs = { self }:
  let
    toplevels = import ./toplevels { };
    system = page: toplevels.mkToplevel { name = "node"; etc."page".text = page; };
    node = page: [ { name = "web1"; host = "127.0.0.1"; toplevel = system page; } ];
  in { first = system "zero"; a = node "one"; b = node "two"; systems = { a = system "one"; b = system "two"; }; };
}
`

func main() { stage.Main("bench-rebuild", run) }

func run(ctx context.Context) error {
	rounds := flag.Int("rounds", 5, "how often each case is measured; the median counts")
	flag.Parse()
	on := stage.Stage{Targets: []rig.Target{rigworld.Target("web1", 22)}, Flake: flakeText, First: "first"}
	return on.Use(ctx, func(r *rig.Rig) error {
		b := bench{rig: r}
		if err := b.prepare(ctx); err != nil {
			return err
		}
		return b.measure(ctx, *rounds)
	})
}

// measure prints the tables.
func (b *bench) measure(ctx context.Context, rounds int) error {
	fmt.Println("| round trip | case | way | connections | kB to the host | seconds | ratio |\n|---|---|---|---|---|---|---|")
	at := medians{}
	for _, latency := range []time.Duration{0, 25 * time.Millisecond, 50 * time.Millisecond} {
		relay, err := b.rig.Relay(ctx, b.rig.Host("web1"), 22, rig.LinkSpec{Latency: latency})
		if err != nil {
			return err
		}
		for _, change := range []bool{true, false} {
			if err := b.compare(ctx, relay, 2*latency, change, rounds, at); err != nil {
				relay.Close()
				return err
			}
		}
		relay.Close()
	}
	at.print(os.Stdout)
	return nil
}

// medians are the samples that count, by what was measured and the link's round trip.
type medians map[string]map[time.Duration]sample

// print tells what they come to, in the order of their names and round trips.
func (m medians) print(w io.Writer) {
	fmt.Fprintln(w, "\nRound trips, as the slope of the seconds over the link's round trip:")
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(w, "- %s: %.1f\n", name, (m[name][100*time.Millisecond].seconds-m[name][0].seconds)/0.1)
	}
	fmt.Fprintln(w, "\nSeconds by phase:")
	for _, name := range slices.Sorted(maps.Keys(m)) {
		for _, trip := range slices.Sorted(maps.Keys(m[name])) {
			if phases := m[name][trip].phases; phases != "" {
				fmt.Fprintf(w, "- %s, %v: %s\n", name, trip, phases)
			}
		}
	}
}

// bench is a rig with the systems on its deployer.
type bench struct {
	rig     *rig.Rig
	systems map[string]string // toplevels, by attribute
	at      string            // the attribute that the host runs
}

func (b *bench) prepare(ctx context.Context) error {
	b.systems = map[string]string{}
	for _, name := range []string{"a", "b"} {
		path, err := rigworld.BuildToplevel(ctx, b.rig, ".#systems."+name)
		if err != nil {
			return err
		}
		if _, err := b.rig.Deployer.Sh(ctx, "ln -sfn "+path+" /nix/var/nix/gcroots/bench-"+name); err != nil {
			return err
		}
		b.systems[name] = path
	}
	return b.rig.Deployer.WriteFile(ctx, "/root/rebuild.sh", []byte(script), 0o755)
}

// sample is one deploy.
type sample struct {
	seconds     float64
	connections int
	bytes       int64
	phases      string // of deploy-ssh, with their seconds
}

// compare measures both ways in turns, so that both meet the same noise.
func (b *bench) compare(ctx context.Context, relay *rig.Relay, trip time.Duration, change bool, rounds int, at medians) error {
	ways := []struct {
		name string
		call func(context.Context, *rig.Relay, string) (float64, string, error)
	}{{"nixos-rebuild's commands", b.rebuild}, {"deploy-ssh", b.deploy}}
	name := map[bool]string{true: "one path changed", false: "unchanged"}[change]
	samples := make([][]sample, len(ways))
	for range rounds {
		for i, way := range ways {
			to := b.at
			if change || to == "" {
				to = map[string]string{"": "a", "a": "b", "b": "a"}[b.at]
			}
			if change {
				if err := b.forget(ctx, to); err != nil {
					return err
				}
			}
			connections, sent := relay.Connections(), relay.Sent()
			seconds, phases, err := way.call(ctx, relay, to)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", way.name, name, err)
			}
			b.at = to
			samples[i] = append(samples[i], sample{seconds, relay.Connections() - connections, relay.Sent() - sent, phases})
		}
	}
	var base float64
	for i, way := range ways {
		slices.SortFunc(samples[i], func(x, y sample) int { return int(1e6 * (x.seconds - y.seconds)) })
		s := samples[i][len(samples[i])/2]
		if i == 0 {
			base = s.seconds
		}
		key := way.name + ", " + name
		if at[key] == nil {
			at[key] = map[time.Duration]sample{}
		}
		at[key][trip] = s
		fmt.Printf("| %v | %s | %s | %d | %d | %.2f | %.2f |\n", trip, name, way.name, s.connections, s.bytes/1000, s.seconds, s.seconds/base)
	}
	return nil
}

// forget takes a system off the host that it does not run, so that it is copied again.
func (b *bench) forget(ctx context.Context, name string) error {
	_, err := b.rig.Host("web1").Sh(ctx, `rm -rf /nix/var/nix/gcroots/deploy-ssh*
for link in /nix/var/nix/profiles/system-*-link; do [ "$(readlink -f $link)" = `+b.systems[name]+` ] && rm $link; done
nix-store --delete --ignore-liveness `+b.systems[name]+` >/dev/null 2>&1; nix-collect-garbage >/dev/null 2>&1
! nix-store --check-validity `+b.systems[name]+` 2>/dev/null`)
	return err
}

func (b *bench) rebuild(ctx context.Context, relay *rig.Relay, to string) (float64, string, error) {
	began := time.Now()
	_, err := b.rig.Deployer.Sh(ctx, fmt.Sprintf("bash /root/rebuild.sh %s %d", b.systems[to], relay.Port))
	return time.Since(began).Seconds(), "", err
}

// deploy takes the time of the whole call but its evaluation and build.
func (b *bench) deploy(ctx context.Context, relay *rig.Relay, to string) (float64, string, error) {
	nodes := `{"nodes":{"web1":{"options":["Port=` + strconv.Itoa(relay.Port) + `","StrictHostKeyChecking=no"]}}}`
	out, err := b.rig.Deployer.Run(ctx, rig.Cmd{
		Args: []string{rigworld.Program, ".#" + to, "--json", "--settle", "0s"}, Dir: rigworld.Flake, Env: []string{"DEPLOY_SSH_NODES=" + nodes},
	})
	if err != nil {
		return 0, "", err
	}
	if out.Code != 0 {
		return 0, "", fmt.Errorf("exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	var seconds float64
	var phases []string
	for line := range strings.Lines(out.Stdout) {
		var record report.Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			return 0, "", err
		}
		if p := record.Phase; p != nil && p.Node != "" {
			phases = append(phases, fmt.Sprintf("%s %.2f", p.Name, p.Seconds))
		}
		if p := record.Phase; p != nil && (p.Name == report.Evaluate || p.Name == report.Build) {
			seconds -= p.Seconds
		}
		if record.Summary != nil {
			seconds += record.Summary.Seconds
		}
	}
	return seconds, strings.Join(phases, ", "), nil
}
