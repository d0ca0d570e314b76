package deploy

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// looksAhead is how many nodes are connected to and looked at before their turn. Each
// keeps an ssh process and a session of its host until then.
const looksAhead = 16

// plannedProbeAge is how old a look may be where a plan is applied. That is to be done on
// hosts that have not moved, so they are looked at once more before the first change.
const plannedProbeAge = 5 * time.Second

// sight is a look at a host: connection and probe.
type sight struct {
	// claimed is whether somebody has taken it on, and done is closed when it is taken.
	claimed atomic.Bool
	done    chan struct{}
	// end is why there is no connection; nil when there is one.
	end *verdict.Decision
	// probed is the probe, of which there is no record yet: two nodes that lead to one
	// machine are told apart only at their turn.
	probed performed
	// at is when it ended.
	at time.Time
	// changed is how many hosts the run had changed when it began. One that was being
	// changed doesn't count: the look may have come too early.
	changed int64
}

// lookAhead looks at the nodes in their order, side by side and before their turn. The
// returned function waits until that has ended: it does once each node has begun or is
// known to never begin.
func lookAhead(nodes []*deployment) (wait func()) {
	var looking conc.WaitGroup
	window := make(chan struct{}, looksAhead)
	looking.Go(func() {
		for _, d := range nodes {
			if d.place.fate != nil {
				continue
			}
			select {
			case <-d.place.begun: // it looks for itself
			case window <- struct{}{}:
				looking.Go(func() {
					d.takeLook()
					<-d.place.begun
					<-window
				})
			}
		}
	})
	return looking.Wait
}

// takeLook takes the node's first look, or waits for whoever does.
func (d *deployment) takeLook() {
	if d.sight.claimed.CompareAndSwap(false, true) {
		d.see(d.place.life)
		close(d.sight.done)
	}
	<-d.sight.done
}

// dropLook ends a look that is under way, and lets none begin.
func (d *deployment) dropLook() {
	d.place.end()
	if d.sight.claimed.CompareAndSwap(false, true) {
		close(d.sight.done)
	}
	<-d.sight.done
}

// see connects and probes.
func (d *deployment) see(ctx context.Context) {
	connect, probe := d.look()
	d.sight.changed = d.fleet.changed.Load()
	if d.sight.end = d.perform(ctx, connect); d.sight.end == nil {
		d.sight.probed = d.met(probe.measure(ctx))
	}
	d.sight.at = time.Now()
}

// meet makes of the look what the deploy begins with, when the node's turn has come. A
// look that is too old, or whose connection is gone, is taken again.
func (d *deployment) meet(ctx context.Context) *verdict.Decision {
	d.takeLook()
	if d.outdated() {
		d.close()
		d.transport, d.login = nil, nil
		d.see(ctx)
	}
	switch {
	case d.sight.end != nil:
		return d.sight.end
	case d.before != nil && (d.lost() || d.stale()):
		return d.renew(ctx)
	}
	return d.conclude(d.known(d.sight.probed))
}

// wayless are the verdicts of a host that did not answer: by now it may.
var wayless = []verdict.Verdict{verdict.Unreachable, verdict.HostKeyRefused, verdict.LoginRefused, verdict.ElevationRefused}

// outdated reports whether a look that came to nothing may be otherwise by now: it is
// too old or, where nodes go one after the other, a host before it in the list was
// changed meanwhile, which may be the one that leads there. A login that was refused is
// not tried again for that: hosts count those.
func (d *deployment) outdated() bool {
	end := d.sight.end
	if end == nil {
		end = d.sight.probed.end
	}
	if d.before != nil || end == nil || !slices.Contains(wayless, end.Verdict) {
		return false
	}
	led := d.fleet.oneByOne() && d.fleet.changed.Load() != d.sight.changed
	return d.stale() || led && end.Verdict == verdict.Unreachable
}

func (d *deployment) stale() bool {
	age := d.fleet.Limits.ProbeAge
	if age == 0 {
		age = DefaultProbeAge
	}
	if d.fleet.Planned != nil {
		age = min(age, plannedProbeAge)
	}
	return time.Since(d.sight.at) > age
}

// lost reports whether the connection is known to be gone.
func (d *deployment) lost() bool {
	transport, ok := d.transport.(interface{ Alive() bool })
	return ok && !transport.Alive()
}

// renew looks at a host again, over a new connection where the old one is gone.
func (d *deployment) renew(ctx context.Context) *verdict.Decision {
	reconnect := phase{report.Connect, func(ctx context.Context) step {
		if err := d.transport.Reopen(ctx); err != nil {
			return d.unreached(ctx, err)
		}
		return step{detail: "connected again", notes: []string{"the connection was lost before the node's turn"}}
	}}
	_, probe := d.look()
	if d.fleet.Rollback != nil {
		d.node.Toplevel = "" // the host chooses anew
	}
	first, age, lost := d.host.MachineID, time.Since(d.sight.at), d.lost()
	var p performed
	if !lost {
		p = probe.measure(ctx)
		// A line that died in silence is noticed only when it is used.
		lost = p.end != nil && p.end.Verdict == verdict.Unreachable
	}
	if lost {
		if end := d.perform(ctx, reconnect); end != nil {
			return end
		}
		p = probe.measure(ctx)
	}
	d.sight.at = time.Now()
	if now := d.host.MachineID; now != first && first != "" {
		p.step = end(verdict.WrongHost, fmt.Sprintf("its machine id is %s, and was %s when it was first looked at", orNothing(now), orNothing(first)))
		return d.conclude(p)
	}
	p = d.known(d.met(p))
	p.notes = append(p.notes, fmt.Sprintf("looked at again: the first look was %.0f s old", age.Seconds()))
	return d.conclude(p)
}

// advance runs a phase that may write. Before the first that does, a look that is no
// longer good is taken again.
func (d *deployment) advance(ctx context.Context, p phase) *verdict.Decision {
	if d.touched {
		return d.perform(ctx, p)
	}
	if d.lost() || d.stale() {
		if end := d.renew(ctx); end != nil {
			return end
		}
		for _, before := range d.work() {
			// The closure was there before and is collected by now.
			if before.name == p.name || d.host.Valid {
				break
			}
			if end := d.advance(ctx, before); end != nil {
				return end
			}
		}
	}
	copies := p.name == report.Copy || p.name == report.Build
	// A copy takes its time, in which a host can move away from a plan.
	if !copies || !d.host.Valid && d.fleet.Planned == nil {
		d.touched = true
	}
	return d.perform(ctx, p)
}
