// Fleet measures runs over many hosts: how long they take, and what they cost the
// deployer in CPU time, memory and processes.
//
// The hosts are on the same machine as the deployer, so that its cores do their work,
// too: what one host costs bounds what many can take side by side.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/tests/bench/stage"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

func main() { stage.Main("bench-fleet", run) }

func run(ctx context.Context) error {
	var b bench
	flag.StringVar(&b.suite, "suite", "trixie", "Debian release of all hosts")
	flag.IntVar(&b.hosts, "hosts", 20, "how many hosts")
	flag.IntVar(&b.parallel, "p", 0, "how many nodes at once; 0 means all")
	flag.DurationVar(&b.roundTrip, "rtt", 0, "round trip between the deployer and each host")
	flag.BoolVar(&b.loop, "loop", false, "measure also a loop of runs over one node each")
	flag.Parse()
	if b.hosts < 1 || b.parallel < 0 || b.roundTrip < 0 || flag.NArg() > 0 {
		return errors.New("-hosts is at least 1, -p and -rtt are not below 0, and there are no other arguments")
	}
	if b.parallel == 0 {
		b.parallel = b.hosts
	}
	on := stage.Stage{Suite: b.suite, Flake: fmt.Sprintf(flakeText, b.hosts), First: "one"}
	for i := range b.hosts {
		on.Targets = append(on.Targets, rigworld.Target(fmt.Sprintf("h%d", i), 22))
	}
	return on.Use(ctx, func(r *rig.Rig) error {
		b.rig = r
		defer b.close()
		if err := b.lead(ctx); err != nil {
			return err
		}
		return b.measure(ctx)
	})
}

// bench is a rig of hosts that all run and boot the system first.
type bench struct {
	suite           string
	hosts, parallel int
	roundTrip       time.Duration
	loop            bool

	rig    *rig.Rig
	relays []*rig.Relay
	// env leads the nodes to the relays; empty without any.
	env string
}

// flakeText has the nodes of both systems; %d is how many.
const flakeText = `{ outputs = { self }:
  let
    toplevels = import ./toplevels { };
    nodes = name: builtins.genList (i: { name = "h${toString i}"; host = "h${toString i}"; toplevel = toplevels.mkToplevel { inherit name; }; }) %d;
  in { one = toplevels.mkToplevel { name = "first"; }; first = nodes "first"; second = nodes "second"; };
}
`

// lead has the nodes reached over links of the wanted round trip.
func (b *bench) lead(ctx context.Context) error {
	if b.roundTrip == 0 {
		return nil
	}
	type node struct {
		Host    string   `json:"host"`
		Options []string `json:"options"`
	}
	nodes := map[string]node{}
	for _, h := range b.rig.Targets {
		relay, err := b.rig.Relay(ctx, h, 22, rig.LinkSpec{Latency: b.roundTrip / 2})
		if err != nil {
			return err
		}
		b.relays = append(b.relays, relay)
		nodes[h.Name] = node{relay.Addr, []string{fmt.Sprintf("Port=%d", relay.Port)}}
	}
	text, err := json.Marshal(map[string]any{"nodes": nodes})
	b.env = "DEPLOY_SSH_NODES=" + string(text)
	return err
}

// close closes the relays.
func (b *bench) close() {
	for _, relay := range b.relays {
		_ = relay.Close()
	}
}

// measure prints the table.
func (b *bench) measure(ctx context.Context) error {
	fmt.Printf("%s, %d hosts, round trip %v\n\n", b.suite, b.hosts, b.roundTrip)
	fmt.Println("| run | seconds | CPU deployer | CPU hosts | peak memory | processes |\n|---|---|---|---|---|---|")
	const program = "deploy-ssh --json --settle 0s "
	many := fmt.Sprintf("-p %d", b.parallel)
	cases := []struct {
		name, command string
		nodes         int
		verdict       string
		twice         bool // the first time warms the evaluation up
	}{
		{"no-op of one", program + ".#first --on h0", 1, "unchanged", true},
		{"no-op of all, one after the other", program + ".#first", b.hosts, "unchanged", true},
		{"no-op of all, " + many, program + many + " .#first", b.hosts, "unchanged", true},
		{"plan of all", "deploy-ssh plan --json .#second", b.hosts, "", true},
		{"deploy of all, " + many, program + many + " .#second", b.hosts, "switched", false},
	}
	if b.loop {
		each := fmt.Sprintf("sh -c 'for i in $(seq 0 %d); do %s .#first --on h$i || exit; done'", b.hosts-1, program)
		cases = append(cases[:1:1], cases...)
		cases[1].name, cases[1].command, cases[1].nodes = "no-op of all, a run for each", each, b.hosts
	}
	for _, c := range cases {
		if c.twice {
			if _, err := b.once(ctx, c.command, c.nodes, c.verdict); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		s, err := b.once(ctx, c.command, c.nodes, c.verdict)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("| %s | %.2f | %.1f s | %.1f s | %d MiB | %d |\n", c.name, s.seconds, s.cpu, s.hosts, s.peak>>20, s.processes)
	}
	return nil
}

// sample is one run.
type sample struct {
	seconds   float64
	cpu       float64 // seconds, of all processes of the run on the deployer
	hosts     float64 // seconds, of all that the hosts did meanwhile
	peak      int64   // bytes, of all of the deployer's at one time, what they share counted once
	processes int     // the most at one time
}

//go:embed measured.sh
var measured string

// once runs a command on the deployer. It must end well, and each of so many nodes with
// the verdict, if one is given.
func (b *bench) once(ctx context.Context, command string, nodes int, verdict string) (sample, error) {
	d := b.rig.Deployer
	before, err := b.hostsCPU(ctx)
	if err != nil {
		return sample{}, err
	}
	out, err := d.Run(ctx, rig.Cmd{Args: []string{"bash", "-c", measured, "measured", command}, Dir: rigworld.Flake, Env: []string{b.env}})
	if err != nil {
		return sample{}, err
	}
	fields := strings.Fields(out.Stdout)
	if len(fields) != 6 || fields[0] != "0" {
		said, _ := d.ReadFile(ctx, "/root/bench.err")
		return sample{}, fmt.Errorf("%s%s%s", out.Stdout, out.Stderr, said)
	}
	var numbers []float64
	for _, field := range fields[1:] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return sample{}, fmt.Errorf("measuring said %q: %w", out.Stdout, err)
		}
		numbers = append(numbers, n)
	}
	records, err := d.ReadFile(ctx, "/root/bench.out")
	if err != nil {
		return sample{}, err
	}
	if err := check(records, nodes, verdict); err != nil {
		return sample{}, err
	}
	after, err := b.hostsCPU(ctx)
	if err != nil {
		return sample{}, err
	}
	return sample{seconds: numbers[0], cpu: numbers[1] + numbers[2], hosts: after - before, peak: int64(numbers[3]) << 10, processes: int(numbers[4])}, nil
}

// hostsCPU is the CPU time of everything on all hosts since their boot, in seconds.
func (b *bench) hostsCPU(ctx context.Context) (float64, error) {
	sum := 0.0
	for _, h := range b.rig.Targets {
		out, err := h.Sh(ctx, "sed -n 's/^usage_usec //p' /sys/fs/cgroup/cpu.stat")
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of %s: %w", h.Name, err)
		}
		sum += n / 1e6
	}
	return sum, nil
}

// check counts the verdicts in the records of a run.
func check(records []byte, nodes int, verdict string) error {
	n := 0
	for line := range strings.Lines(string(records)) {
		var r report.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return err
		}
		switch {
		case r.Result != nil && string(r.Result.Verdict) != verdict && verdict != "":
			return fmt.Errorf("%s is %s: %s", r.Result.Node, r.Result.Verdict, r.Result.Reason)
		case r.Result != nil, r.Planned != nil:
			n++
		}
	}
	if n != nodes {
		return fmt.Errorf("%d nodes have a result, want %d", n, nodes)
	}
	return nil
}
