// Package rollout decides in which order and how many at once the nodes of a fleet
// are deployed, and when no more of them are begun. It is pure.
//
// A run is a row of waves. The nodes of one wave are deployed by the policy's
// strategy, and a wave begins when the one before has ended wholly.
package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Strategy is how the nodes of a wave go. The empty strategy is [Parallel] where
// several nodes may go at once, else [Serial].
type Strategy string

const (
	// Serial deploys one node after the other.
	Serial Strategy = "serial"
	// Parallel deploys several nodes at once, each at its own pace.
	Parallel Strategy = "parallel"
	// Lockstep has every node finish a phase before any starts the next.
	Lockstep Strategy = "lockstep"
)

// Strategies are all strategies.
func Strategies() []Strategy { return []Strategy{Serial, Parallel, Lockstep} }

// Set implements pflag.Value.
func (s *Strategy) Set(text string) error {
	if !slices.Contains(Strategies(), Strategy(text)) {
		return fmt.Errorf("it is one of %s, %s, %s", Serial, Parallel, Lockstep)
	}
	*s = Strategy(text)
	return nil
}

// String implements pflag.Value.
func (s *Strategy) String() string { return string(*s) }

// Type implements pflag.Value.
func (*Strategy) Type() string { return "STRATEGY" }

// Policy is how a fleet is deployed. The zero value is one node after the other, to
// the last, whatever becomes of them.
type Policy struct {
	Strategy Strategy
	// Parallel is how many nodes go at once; 0 means 1.
	Parallel int
	// MaxFailures is how many nodes may fail until no more are begun.
	MaxFailures Limit
	// Canary is how many nodes go first, all of which must end well; 0 means none.
	Canary int
	// Batch is how many nodes a wave has; 0 means all.
	Batch int
	// Pause is how long to wait between waves; 0 means not at all.
	Pause time.Duration
}

// AtOnce is how many nodes go at once, at least 1.
func (p Policy) AtOnce() int { return max(1, p.Parallel) }

// Chosen is the strategy that the policy comes to.
func (p Policy) Chosen() Strategy {
	switch {
	case p.Strategy != "":
		return p.Strategy
	case p.AtOnce() > 1:
		return Parallel
	}
	return Serial
}

// Check refuses parts that contradict each other. Its errors name the flags.
func (p Policy) Check() error {
	switch many := p.AtOnce() > 1; {
	case p.Parallel < 0:
		return fmt.Errorf("--parallel %d: at least 1 is wanted", p.Parallel)
	case p.Canary < 0:
		return fmt.Errorf("--canary %d: at least 1 is wanted", p.Canary)
	case p.Batch < 0:
		return fmt.Errorf("--batch %d: at least 1 is wanted", p.Batch)
	case p.Pause < 0:
		return fmt.Errorf("--pause %v: a duration above zero is wanted, such as 30s", p.Pause)
	case p.Strategy == Serial && many:
		return fmt.Errorf("--strategy serial with --parallel %d: serial is one node at a time", p.Parallel)
	case p.Strategy == Parallel && !many:
		return errors.New("--strategy parallel: say with --parallel how many nodes may go at once, 2 or more")
	case p.Batch > 0 && p.Batch < p.AtOnce():
		return fmt.Errorf("--batch %d with --parallel %d: a batch of %[1]d never has so many at once", p.Batch, p.Parallel)
	case p.Pause > 0 && p.Chosen() != Serial && p.Batch == 0 && p.Canary == 0:
		return fmt.Errorf("--pause %v: there is nothing to pause between; give --batch or --canary", p.Pause)
	}
	return nil
}

// Wave is the nodes From up to and without To, by their place in the list.
type Wave struct {
	From, To int
	// Paused says that there is a pause before it.
	Paused bool
}

// Waves parts so many nodes: first the canaries, then the batches. Without either,
// a pause stands between single nodes.
func (p Policy) Waves(total int) []Wave {
	var waves []Wave
	size := p.Batch
	if size == 0 && p.Pause > 0 && p.Canary == 0 {
		size = 1
	}
	for from := 0; from < total; {
		to := total
		switch {
		case from < p.Canary:
			to = p.Canary
		case size > 0:
			to = from + size
		}
		waves = append(waves, Wave{From: from, To: min(to, total), Paused: from > 0 && p.Pause > 0})
		from = to
	}
	return waves
}

// Ended is a node that has ended.
type Ended struct {
	Node string
	// Place is its place in the list, from 0.
	Place int
	// Failed is whether it is not as wanted, and Verdict the word for what it is.
	Failed  bool
	Verdict string
}

// Stop says why no more of total nodes may be begun, naming the rule; empty when
// they may. A failed canary is a reason whatever else is allowed.
func (p Policy) Stop(total int, ended []Ended) string {
	var failed []string
	inOrder := slices.SortedFunc(slices.Values(ended), func(a, b Ended) int { return a.Place - b.Place })
	for _, e := range inOrder {
		if !e.Failed {
			continue
		}
		if e.Place < p.Canary {
			return fmt.Sprintf("--canary %d: the canary %s is %s", p.Canary, e.Node, e.Verdict)
		}
		failed = append(failed, e.Node)
	}
	if p.MaxFailures.exceeded(len(failed), total) {
		return fmt.Sprintf("--max-failures %s: %d of %d nodes have failed (%s)", &p.MaxFailures, len(failed), total, names(failed))
	}
	return ""
}

// names lists some of the names.
func names(all []string) string {
	const most = 5
	if len(all) > most {
		return strings.Join(all[:most], ", ") + ", …"
	}
	return strings.Join(all, ", ")
}
