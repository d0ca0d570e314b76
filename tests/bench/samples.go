package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// sample is one copy.
type sample struct {
	Suite      string
	Paths, MiB int
	Link, Case string
	Way        string
	Round      int
	NAR        int64 // bytes of the closure, unpacked

	Seconds     float64
	Wire        int64
	DeployerCPU float64 // seconds, of all processes
	HostCPU     float64
	Peak        int64   // bytes, of the deployer's program itself
	Load        float64 // of the machine, before
	Failed      string  // why there is nothing of this; empty when there is
}

// slow is from how many seconds on a way is measured once only.
const slow = 60

// measured reports whether there is a sample, or need not be one.
func (b *bench) measured(key sample) bool {
	return slices.ContainsFunc(b.samples, func(s sample) bool {
		once := s.Round == 0 && (s.Seconds > slow || s.Failed != "")
		return s.same(key) && s.Way == key.Way && (s.Round == key.Round || once)
	})
}

// same reports whether both are of one table.
func (s sample) same(o sample) bool {
	return s.Suite == o.Suite && s.Paths == o.Paths && s.MiB == o.MiB && s.Link == o.Link && s.Case == o.Case
}

func readSamples(file string) ([]sample, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []sample
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func (b *bench) keep(s sample) error {
	b.samples = append(b.samples, s)
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(b.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// table prints the median of each way, and how long deploy-ssh took against it.
func (b *bench) table(w io.Writer, link, name string) {
	byWay := map[string][]sample{}
	var order []string
	var load float64
	for _, s := range b.samples {
		if !s.same(sample{Suite: b.suite, Paths: b.paths, MiB: b.mib, Link: link, Case: name}) {
			continue
		}
		if byWay[s.Way] == nil {
			order = append(order, s.Way)
		}
		byWay[s.Way] = append(byWay[s.Way], s)
		load = max(load, s.Load)
	}
	if order == nil {
		return
	}
	ours := median(byWay["deploy-ssh zstd"])
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Compare(strings.Index(a, "deploy-ssh")*-1, strings.Index(b, "deploy-ssh")*-1)
	})
	nar := byWay[order[0]][0].NAR
	fmt.Fprintf(w, "### %s, %d paths of %d MiB, %s\n\nNAR bytes of the closure: %d. Load of the machine: up to %.1f.\n\n", link, b.paths, b.mib, name, nar, load)
	fmt.Fprintln(w, "| way | seconds | deploy-ssh takes | bytes sent | of the NAR bytes | CPU deployer | CPU host | peak memory | runs |\n|---|---|---|---|---|---|---|---|---|")
	for _, name := range order {
		s := median(byWay[name])
		if s.Failed != "" {
			fmt.Fprintf(w, "| %s | %s | | | | | | | %d |\n", name, s.Failed, len(byWay[name]))
			continue
		}
		ratio := "—"
		if ours.Seconds > 0 {
			ratio = fmt.Sprintf("%.2f", ours.Seconds/s.Seconds)
		}
		fmt.Fprintf(w, "| %s | %.2f | %s | %d | %.3f | %.1f s | %.1f s | %d MiB | %d |\n",
			name, s.Seconds, ratio, s.Wire, float64(s.Wire)/float64(nar), s.DeployerCPU, s.HostCPU, s.Peak>>20, len(byWay[name]))
	}
	fmt.Fprintln(w)
}

// median is the sample of the middle time; of the most memory of all.
func median(all []sample) sample {
	good := slices.DeleteFunc(slices.Clone(all), func(s sample) bool { return s.Failed != "" })
	if len(good) == 0 {
		return append(all, sample{Failed: "not measured"})[0]
	}
	slices.SortFunc(good, func(a, b sample) int { return cmp.Compare(a.Seconds, b.Seconds) })
	m := good[len(good)/2]
	for _, s := range good {
		m.Peak = max(m.Peak, s.Peak)
	}
	return m
}
