package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// way is one way to copy.
type way struct {
	name string
	// command copies $toplevel over the connection that is open at $socket.
	command string
	// compressed is whether that connection compresses.
	compressed bool
	// ours is set for deploy-ssh, which opens its own connection and tells how long
	// the copy alone took.
	ours bool
}

func waysOf(levels []string) []way {
	var all []way
	for _, level := range levels {
		all = append(all, way{name: "deploy-ssh " + level, ours: true, command: rigworld.Program + " .#pushed --goal push --json --compress " + level})
	}
	nix := func(url string) string {
		return "nix --extra-experimental-features nix-command copy --no-check-sigs --to " + url + "://root@web1 $toplevel"
	}
	return append(all,
		way{name: "nix copy ssh-ng", command: nix("ssh-ng")},
		way{name: "nix copy ssh-ng compressed", command: nix("ssh-ng"), compressed: true},
		way{name: "nix copy ssh", command: nix("ssh")},
		way{name: "nix copy ssh compressed", command: nix("ssh"), compressed: true},
		way{name: "nix-copy-closure", command: "nix-copy-closure --to root@web1 $toplevel"},
		way{name: "nix-copy-closure compressed", command: "nix-copy-closure --to root@web1 $toplevel", compressed: true},
	)
}

// measured runs $command and says how long it took, and the most memory
// that its own process had. Its standard output is kept.
const measured = `
began=$(date +%s.%N)
ticks() { [ -z "$master" ] || cut -d ' ' -f 14,15 /proc/$master/stat; }
set -- $(ticks)
sh -c "exec $command" >/root/bench.out 2>/root/bench.err & pid=$!
while memory=$(grep -s VmHWM /proc/$pid/status); do peak=${memory:-$peak}; sleep 0.05; done
wait $pid; status=$?
ended=$(date +%s.%N)
before="$1 $2"; set -- $before $(ticks)
echo "$status $(echo "$began $ended" | perl -ane 'print $F[1]-$F[0]') $(echo "$peak" | tr -dc 0-9) $(( ${3:-0} + ${4:-0} - ${1:-0} - ${2:-0} ))"
times >/root/bench.times; tail -n 1 /root/bench.times
`

// copy copies a toplevel in one way, and fills in the sample.
func (b *bench) copy(ctx context.Context, relay *rig.Relay, w way, toplevel string, s sample) (sample, error) {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return s, err
	}
	_, _ = fmt.Sscan(string(load), &s.Load)
	d, web1 := b.rig.Deployer, b.rig.Host("web1")
	env := fmt.Sprintf("cd %s; toplevel=%s; export toplevel; command='%s'\n", rigworld.Flake, toplevel, w.command)
	ssh := fmt.Sprintf("ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p %d", relay.Port)
	if w.ours {
		if err := d.WriteFile(ctx, rigworld.Flake+"/pushed", []byte(toplevel), 0o644); err != nil {
			return s, err
		}
		env += fmt.Sprintf("DEPLOY_SSH_NODES='{\"nodes\":{\"web1\":{\"options\":[\"Port=%d\",\"StrictHostKeyChecking=no\"]}}}'; export DEPLOY_SSH_NODES\n", relay.Port)
	} else {
		compression := "no"
		if w.compressed {
			compression = "yes"
		}
		if _, err := d.Sh(ctx, fmt.Sprintf("%s -o Compression=%s -M -S /root/bench.ctl -f -N root@127.0.0.1 2>/dev/null", ssh, compression)); err != nil {
			return s, err
		}
		defer func() {
			_, _ = d.Sh(context.WithoutCancel(ctx), "ssh -S /root/bench.ctl -O exit root@127.0.0.1 2>/dev/null; rm -f /root/bench.ctl")
		}()
		env += "NIX_SSHOPTS='-S /root/bench.ctl'; export NIX_SSHOPTS; master=$(ssh -S /root/bench.ctl -O check root@127.0.0.1 2>&1 | tr -dc 0-9)\n"
	}
	sent, cpu := relay.Sent(), hostCPU(ctx, web1)
	limited, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	out, err := d.Run(limited, rig.Cmd{Args: []string{"bash", "-c", env + measured}})
	if err != nil {
		if errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
			s.Failed = fmt.Sprintf("> %.0f", b.limit.Seconds())
			return s, nil
		}
		return s, err
	}
	fields := strings.Fields(out.Stdout)
	if len(fields) != 6 || fields[0] != "0" {
		said, _ := d.ReadFile(ctx, "/root/bench.err")
		s.Failed = strings.ReplaceAll(fmt.Sprintf("failed: %s %s", out.Stdout, said), "\n", " ")
		return s, nil
	}
	s.Wire, s.HostCPU, s.DeployerCPU = relay.Sent()-sent, hostCPU(ctx, web1)-cpu, minutes(fields[4])+minutes(fields[5])
	s.Seconds, _ = strconv.ParseFloat(fields[1], 64)
	ticks, _ := strconv.ParseFloat(fields[3], 64)
	s.DeployerCPU += ticks / 100 // the master is no child of what is measured
	kib, _ := strconv.ParseInt(fields[2], 10, 64)
	s.Peak = kib << 10
	if w.ours {
		records, err := d.ReadFile(ctx, "/root/bench.out")
		if err != nil {
			return s, err
		}
		if s.Seconds, err = copyPhase(records); err != nil {
			return s, err
		}
	}
	_, err = web1.Sh(ctx, "nix-store --check-validity "+toplevel)
	return s, err
}

// copyPhase is how long the copy took in a run of deploy-ssh, 0 when there was none.
func copyPhase(records []byte) (float64, error) {
	seconds := 0.0
	for line := range strings.Lines(string(records)) {
		var r report.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return 0, err
		}
		if r.Progress != nil && os.Getenv("BENCH_PROGRESS") != "" {
			fmt.Fprintln(os.Stderr, r.Progress.Time.Format("05.000"), r.Progress.Text)
		}
		if r.Phase != nil && os.Getenv("BENCH_PROGRESS") != "" {
			fmt.Fprintln(os.Stderr, r.Phase.Time.Format("05.000"), r.Phase.Name, r.Phase.Seconds, r.Phase.Detail)
		}
		if r.Phase != nil && r.Phase.Name == report.Copy {
			seconds = r.Phase.Seconds
		}
		if r.Result != nil && r.Result.Class != "good" {
			return 0, errors.New(r.Result.Reason)
		}
	}
	return seconds, nil
}

// minutes reads bash's 1m2.345s.
func minutes(text string) float64 {
	m, s, _ := strings.Cut(strings.TrimSuffix(text, "s"), "m")
	whole, _ := strconv.ParseFloat(m, 64)
	rest, _ := strconv.ParseFloat(s, 64)
	return 60*whole + rest
}

// hostCPU is the CPU time of everything on a host since its boot, in seconds.
func hostCPU(ctx context.Context, h *rig.Host) float64 {
	out, _ := h.Sh(ctx, "sed -n 's/^usage_usec //p' /sys/fs/cgroup/cpu.stat")
	n, _ := strconv.ParseFloat(strings.TrimSpace(out), 64)
	return n / 1e6
}

// transplant brings a closure into the host's store around the network.
func transplant(ctx context.Context, r *rig.Rig, toplevel string) error {
	reader, writer := io.Pipe()
	go func() {
		_, err := r.Deployer.Run(ctx, rig.Cmd{Args: []string{"sh", "-c", "nix-store --export $(nix-store -qR " + toplevel + ")"}, Stdout: writer})
		writer.CloseWithError(err)
	}()
	defer reader.Close()
	in, err := r.Host("web1").Run(ctx, rig.Cmd{Args: []string{"sh", "-c", "nix-store --import >/dev/null"}, Stdin: reader})
	if err == nil && in.Code != 0 {
		err = errors.New(in.Stderr)
	}
	return err
}
