// Bench measures how long it takes to bring closures to a host, by deploy-ssh and by
// every way that Nix has, over the same links, in the same run: see docs/benchmarks.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/tests/bench/stage"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/bulk"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// links are what is between deployer and host. Latency is half of a round trip.
var links = map[string]rig.LinkSpec{
	"loopback":     {},
	"200Mbit-50ms": {Latency: 25 * time.Millisecond, BytesPerSecond: 25_000_000},
	"20Mbit-100ms": {Latency: 50 * time.Millisecond, BytesPerSecond: 2_500_000},
}

func main() { stage.Main("bench", run) }

func run(ctx context.Context) error {
	var b bench
	linkNames := flag.String("links", "loopback,200Mbit-50ms,20Mbit-100ms", "links, separated by commas")
	only := flag.String("only", "", "ways, separated by commas; empty means all")
	cases := flag.String("cases", "full,incremental,unchanged", "what the host has before: nothing, all but 1% of the paths, everything")
	flag.StringVar(&b.suite, "suite", "trixie", "Debian release of both hosts")
	flag.IntVar(&b.paths, "paths", 800, "store paths of the closure")
	flag.IntVar(&b.mib, "mib", 255, "size of the closure in MiB")
	flag.IntVar(&b.rounds, "rounds", 3, "how often each way is measured; one that takes over a minute only once")
	flag.DurationVar(&b.limit, "limit", 3*time.Minute, "how long one copy may take")
	flag.StringVar(&b.levels, "levels", "zstd", "values of --compress, separated by commas")
	flag.StringVar(&b.file, "file", "bench.jsonl", "where measurements are kept; what is there is not measured again")
	flag.Parse()
	if *only != "" {
		b.only = strings.Split(*only, ",")
	}
	b.cases = strings.Split(*cases, ",")
	for _, c := range b.cases {
		if !slices.Contains([]string{"full", "incremental", "unchanged"}, c) {
			return fmt.Errorf("no case is called %q", c)
		}
	}
	var err error
	if b.samples, err = readSamples(b.file); err != nil {
		return err
	}
	var chosen []string
	for _, name := range strings.Split(*linkNames, ",") {
		if _, ok := links[name]; !ok {
			return fmt.Errorf("no link is called %q", name)
		}
		chosen = append(chosen, name)
	}
	on := stage.Stage{Suite: b.suite, Targets: []rig.Target{rigworld.Target("web1", 22)}, Flake: flakeText, First: "first", Before: inMemory}
	return on.Use(ctx, func(r *rig.Rig) error {
		b.rig = r
		if err := b.build(ctx); err != nil {
			return err
		}
		for _, name := range chosen {
			if err := b.measure(ctx, name, links[name]); err != nil {
				return err
			}
		}
		return nil
	})
}

// bench is a rig with two closures on its deployer.
type bench struct {
	suite, levels, file string
	paths, mib, rounds  int
	limit               time.Duration
	only, cases         []string
	samples             []sample

	rig               *rig.Rig
	full, incremental string // toplevels
}

const flakeText = `{ outputs = { self }: {
  first = (import ./toplevels { }).mkToplevel { name = "first"; };
  pushed = [ { name = "web1"; host = "127.0.0.1"; toplevel = builtins.readFile ./pushed; } ];
}; }
`

// inMemory has the host's store in memory: deleting what the last copy brought would slow the
// next one down on a disk (ext4 passes over inodes that were just freed, one by one).
func inMemory(ctx context.Context, r *rig.Rig) error {
	_, err := r.Host("web1").Sh(ctx, "mkdir /nix.new && mount -t tmpfs -o size=4g tmpfs /nix.new && cp -a /nix/. /nix.new/ && mount --bind /nix.new /nix")
	return err
}

// build builds the two closures on the deployer.
func (b *bench) build(ctx context.Context) (err error) {
	if b.full, err = bulk.Build(ctx, b.rig.Deployer, bulk.Spec{Name: "full", Paths: b.paths, MiB: b.mib}); err != nil {
		return err
	}
	b.incremental, err = bulk.Build(ctx, b.rig.Deployer, bulk.Spec{Name: "changed", Paths: b.paths, MiB: b.mib, Changed: true})
	return err
}

// measure measures what is not measured yet on one link, and prints its tables. The ways
// take turns, in a new order in each round, so that what else the machine does meets all.
func (b *bench) measure(ctx context.Context, link string, spec rig.LinkSpec) error {
	relay, err := b.rig.Relay(ctx, b.rig.Host("web1"), 22, spec)
	if err != nil {
		return err
	}
	defer relay.Close()
	ways := slices.DeleteFunc(waysOf(strings.Split(b.levels, ",")), func(w way) bool { return b.only != nil && !slices.Contains(b.only, w.name) })
	for _, name := range b.cases {
		have, want := "", b.full
		switch name {
		case "incremental":
			have, want = b.full, b.incremental
		case "unchanged":
			have = b.full
		}
		size, err := b.rig.Deployer.Sh(ctx, "nix path-info --json --closure-size "+want+" 2>/dev/null | grep -o '\"closureSize\":[0-9]*' | cut -d: -f2")
		if err != nil {
			return err
		}
		nar, err := strconv.ParseInt(strings.TrimSpace(size), 10, 64)
		if err != nil {
			return fmt.Errorf("the size of %s: %w", want, err)
		}
		for round := range b.rounds {
			for i := range ways {
				w := ways[(i+round)%len(ways)]
				key := sample{Suite: b.suite, Paths: b.paths, MiB: b.mib, Link: link, Case: name, Way: w.name, Round: round, NAR: nar}
				if b.measured(key) {
					continue
				}
				if err := b.reset(ctx, have); err != nil {
					return err
				}
				s, err := b.copy(ctx, relay, w, want, key)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "%s %s %d: %s %.2fs %d bytes %s\n", link, name, round, w.name, s.Seconds, s.Wire, s.Failed)
				if err := b.keep(s); err != nil {
					return err
				}
			}
		}
		b.table(os.Stdout, link, name)
	}
	return nil
}

// reset leaves on the host its first system and the closure of have, which came
// from the deployer's store around the network.
func (b *bench) reset(ctx context.Context, have string) error {
	web1 := b.rig.Host("web1")
	if _, err := web1.Sh(ctx, "rm -rf /nix/var/nix/gcroots/deploy-ssh* /nix/var/nix/gcroots/bench; nix-collect-garbage >/dev/null 2>&1; rm -rf /nix/var/nix/temproots"); err != nil {
		return err
	}
	if have == "" {
		return nil
	}
	if err := transplant(ctx, b.rig, have); err != nil {
		return err
	}
	_, err := web1.Sh(ctx, "ln -sfn "+have+" /nix/var/nix/gcroots/bench")
	return err
}
