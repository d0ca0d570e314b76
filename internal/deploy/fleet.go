package deploy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"

	"github.com/deploy-ssh/deploy-ssh/internal/activate"
	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/rollout"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Fleet deploys nodes.
type Fleet struct {
	// Identities are the ways to the nodes, by name, all of them checked before the
	// first connection. A node that didn't evaluate has none.
	Identities map[string]*ssh.Identity
	// Open connects to a node by another transport than SSH; nil means SSH.
	Open func(context.Context, plan.Node) (Transport, error)
	// RequirePins refuses nodes without a pinned host key that holds.
	RequirePins bool
	// Copier brings closures to the hosts.
	Copier closure.Engine
	// BuildThere has each host build its own system, from the derivations that are copied
	// to it, where the node has one. nil means that all are built already.
	BuildThere *closure.Build
	Limits     Limits
	// Goal is how far to go; empty means [GoalSwitch].
	Goal Goal
	// Reboot reboots a host after its boot entry was made, and waits for it.
	Reboot bool
	// Confirm, when not 0, makes a host go back to its old system by itself when
	// no fresh login succeeds for so long after the activation.
	Confirm time.Duration
	// NoCheck skips the hosts' pre-switch checks and inhibitors.
	NoCheck bool
	// AcceptDegraded makes the boot entry although units have failed.
	AcceptDegraded bool
	// Rollback, if not nil, brings hosts to an earlier generation of their own
	// instead of to their node's toplevel.
	Rollback *Rollback
	// Planned, if not nil, has the hosts as the plan that is applied has seen them, by
	// node. One that has moved since is left alone.
	Planned map[string]verdict.Sighting
	// Rollout is how many nodes go at once and when no more are begun.
	Rollout rollout.Policy
	// Emit receives the records, one at a time and in order.
	Emit func(report.Record)

	machines machines
	emitting sync.Mutex   // held while Emit works
	changed  atomic.Int64 // how many hosts the run has written to and is done with
}

// Run deploys the nodes in their order: one at a time (FR-001), or as [Fleet.Rollout]
// says. What changes no host is done before a node's turn, but its records come in its
// turn. A node that fails does not stop the later ones (FR-002), unless a rule of the
// rollout does; when ctx ends, those that had not begun are not started. buildErrors has
// the nodes that did not build. There is one result for each node, in order.
func (f *Fleet) Run(ctx context.Context, nodes []plan.Node, buildErrors map[string]error) []report.Result {
	if f.Goal == "" {
		f.Goal = GoalSwitch
	}
	r := &run{fleet: f, asked: nodes, results: make([]*report.Result, len(nodes))}
	deployed := map[string]bool{}
	for i, node := range nodes {
		d := &deployment{fleet: f, node: node, id: activate.NewID(time.Now())}
		d.place = turn{index: i, fate: f.fate(node, buildErrors[node.Name], deployed), begun: make(chan struct{})}
		d.place.life, d.place.end = context.WithCancel(ctx)
		d.sight.done = make(chan struct{})
		d.records.hold()
		r.nodes = append(r.nodes, d)
	}
	for _, wave := range f.Rollout.Waves(len(nodes)) {
		r.pause(ctx, wave)
		if of := r.nodes[wave.From:wave.To]; f.Rollout.Chosen() == rollout.Lockstep {
			r.lockstep(ctx, of)
		} else {
			r.each(ctx, of)
		}
	}
	r.closing.Wait()
	results := make([]report.Result, len(nodes))
	for i, result := range r.results {
		results[i] = *result
	}
	return results
}

// fate is what a node comes to without being contacted; nil when it is to be deployed,
// which deployed remembers.
func (f *Fleet) fate(node plan.Node, unbuilt error, deployed map[string]bool) *verdict.Decision {
	switch {
	case node.EvalError != "":
		return &verdict.Decision{Verdict: verdict.EvalFailed, Reason: node.EvalError}
	case unbuilt != nil:
		return &verdict.Decision{Verdict: verdict.BuildFailed, Reason: unbuilt.Error()}
	case f.Goal == GoalBuild:
		return &verdict.Decision{Verdict: verdict.Staged, Reason: "built"}
	}
	// Side by side it would be chance whose system the machine gets; otherwise the first
	// of the list to be deployed has it.
	if id := f.Identities[node.Name]; id != nil && f.Rollout.Chosen() == rollout.Parallel && deployed[id.Twin] {
		return &verdict.Decision{Verdict: verdict.WrongHost, Reason: fmt.Sprintf("it has the address of node %s, which comes before it in the list", id.Twin)}
	}
	deployed[node.Name] = true
	return nil
}

// failed reports whether the node has failed before its turn. That is told whatever stops
// the others, for nothing of it is to be begun.
func (d *deployment) failed() bool { return d.place.fate != nil && !d.place.fate.Verdict.Good() }

func (f *Fleet) oneByOne() bool { return f.Rollout.Chosen() == rollout.Serial }

func (f *Fleet) emit(r report.Record) {
	f.emitting.Lock()
	defer f.emitting.Unlock()
	f.Emit(r)
}

// turn is a node's place in a run.
type turn struct {
	index int // from 0
	// fate, if not nil, is what the node comes to without being contacted.
	fate *verdict.Decision
	// begun is closed when the node's turn has come, or when it never will.
	begun chan struct{}
	// life ends with the run's context and when the node has ended.
	life context.Context
	end  context.CancelFunc
}

// run is a fleet on its way.
type run struct {
	fleet *Fleet
	asked []plan.Node // as they were given
	nodes []*deployment
	// closing are the connections that are being closed.
	closing conc.WaitGroup

	mu      sync.Mutex
	results []*report.Result // by place in the list; nil until the node has ended
	shown   int              // how many of them have been emitted
	ended   []rollout.Ended
}

// each deploys nodes at their own pace, as many at once as may.
func (r *run) each(ctx context.Context, nodes []*deployment) {
	if r.stopped(ctx) == "" {
		defer lookAhead(nodes)()
	}
	free := make(chan struct{}, r.fleet.Rollout.AtOnce())
	work := pool.New()
	defer work.Wait()
	for _, d := range nodes {
		free <- struct{}{}
		if why := r.stopped(ctx); why != "" && !d.failed() {
			r.skip(d, why)
			<-free
			continue
		}
		r.begin(d)
		work.Go(func() {
			defer func() { <-free }()
			if d.place.fate != nil {
				r.finish(d, *d.place.fate)
				return
			}
			r.finish(d, d.deploy(ctx))
		})
	}
}

// lockstep deploys nodes phase by phase: each phase is done with on every node before
// the next one begins on any. A node that has ended drops out.
func (r *run) lockstep(ctx context.Context, nodes []*deployment) {
	var going []*deployment
	for _, d := range nodes {
		if why := r.stopped(ctx); why != "" && !d.failed() {
			r.skip(d, why)
			continue
		}
		r.begin(d)
		if d.place.fate != nil {
			r.finish(d, *d.place.fate)
			continue
		}
		going = append(going, d)
	}
	if len(going) == 0 {
		return
	}
	atOnce := r.fleet.Rollout.AtOnce()
	going = r.step(ctx, going, report.Connect, max(atOnce, looksAhead), func(d *deployment) func() *verdict.Decision {
		connect, _ := d.look()
		p := connect.measure(ctx)
		return func() *verdict.Decision { return d.conclude(p) }
	})
	going = r.step(ctx, going, report.Probe, max(atOnce, looksAhead), func(d *deployment) func() *verdict.Decision {
		_, probe := d.look()
		p := d.met(probe.measure(ctx))
		d.sight.at = time.Now()
		return func() *verdict.Decision { return d.conclude(d.known(p)) }
	})
	r.sayLost(nodes)
	if len(going) == 0 {
		return
	}
	for i, p := range going[0].work() {
		going = r.step(ctx, going, p.name, atOnce, func(d *deployment) func() *verdict.Decision {
			end := d.advance(ctx, d.work()[i])
			return func() *verdict.Decision { return end }
		})
	}
	for _, d := range going {
		r.finish(d, d.accomplished())
	}
}

// step takes the nodes that are going through one phase and returns those that still
// are. do runs the phase side by side; what it returns is called in list order then.
func (r *run) step(ctx context.Context, going []*deployment, name report.PhaseName, atOnce int, do func(*deployment) func() *verdict.Decision) []*deployment {
	if why := r.broken(); why != "" && ctx.Err() == nil {
		for _, d := range going {
			r.finish(d, d.haltedBefore(name, why))
		}
		return nil
	}
	conclusions := make([]func() *verdict.Decision, len(going))
	work := pool.New().WithMaxGoroutines(atOnce)
	for i, d := range going {
		work.Go(func() { conclusions[i] = do(d) })
	}
	work.Wait()
	var on []*deployment
	for i, d := range going {
		if end := conclusions[i](); end != nil {
			r.finish(d, *end)
		} else {
			on = append(on, d)
		}
	}
	return on
}

// haltedBefore is what a node comes to that goes no further than before a phase.
func (d *deployment) haltedBefore(p report.PhaseName, why string) verdict.Decision {
	decision := verdict.Decision{Verdict: verdict.NotStarted, Reason: why + "; the host was not changed", Notes: d.notes}
	switch {
	case p == report.Finalize && d.fleet.Goal == GoalSwitch:
		decision.Verdict, decision.Reason = verdict.Unfinalized, why+"; the boot entry was not made"
	case p == report.Reboot:
		decision.Verdict, decision.Reason = verdict.Staged, why+"; the boot entry is made, and the host was not rebooted"
	}
	return decision
}

// sayLost tells at once which nodes there is no way to: their results may have to wait
// for those of nodes before them.
func (r *run) sayLost(nodes []*deployment) {
	r.mu.Lock()
	var results []report.Result
	for _, d := range nodes {
		if result := r.results[d.place.index]; result != nil && !result.Verdict.Good() {
			results = append(results, *result)
		}
	}
	r.mu.Unlock()
	var lines []string
	for _, group := range report.Alike(results) {
		lines = append(lines, fmt.Sprintf("%s: %s", group.Verdict, strings.Join(group.Nodes, ", ")))
	}
	if len(lines) > 0 {
		r.fleet.emit(report.Record{Phase: &report.Phase{Time: time.Now(), Name: report.Probe, Detail: strings.Join(lines, "\n")}})
	}
}

// broken says which rule keeps more nodes from being begun; empty when none does.
func (r *run) broken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fleet.Rollout.Stop(len(r.nodes), r.ended)
}

// stopped says why no more nodes are begun; empty when they are.
func (r *run) stopped(ctx context.Context) string {
	if ctx.Err() != nil {
		return "the run was interrupted"
	}
	return r.broken()
}

// begin opens a node's turn.
func (r *run) begin(d *deployment) {
	node := r.asked[d.place.index] // the deployment's own is the look's, which may go on
	r.fleet.emit(report.Record{Announce: &report.Announce{
		Time: time.Now(), Node: node.Name, Index: d.place.index + 1, Total: len(r.nodes),
		Host: node.SSH.Host.V, User: node.SSH.User.V, Toplevel: node.Toplevel,
		Rollback: r.fleet.Rollback != nil, Combined: node.Combined,
	}})
	d.records.open(r.fleet)
	close(d.place.begun)
}

// skip ends a node whose turn never comes. A look at its host that is under way ends.
func (r *run) skip(d *deployment, why string) {
	d.dropLook()
	d.records.discard()
	close(d.place.begun)
	// What was seen ahead is no news of a node that was not begun.
	d.node, d.before, d.after, d.seconds = r.asked[d.place.index], nil, nil, 0
	r.finish(d, verdict.Decision{Verdict: verdict.NotStarted, Reason: why})
}

// finish ends a node. Results come out in list order. Nobody waits for the end of its
// connection but the end of the run.
func (r *run) finish(d *deployment, decision verdict.Decision) {
	r.closing.Go(d.close)
	d.place.end()
	if d.touched {
		r.fleet.changed.Add(1)
	}
	result := d.result(decision)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[d.place.index] = &result
	r.ended = append(r.ended, rollout.Ended{
		Node: d.node.Name, Place: d.place.index, Verdict: string(result.Verdict),
		Failed: !result.Verdict.Good() && result.Verdict != verdict.NotStarted,
	})
	for ; r.shown < len(r.results) && r.results[r.shown] != nil; r.shown++ {
		r.nodes[r.shown].emit(report.Record{Result: r.results[r.shown]})
	}
}

// pause waits before a wave where the rollout says so, unless no node of it is begun.
func (r *run) pause(ctx context.Context, w rollout.Wave) {
	if !w.Paused || r.stopped(ctx) != "" {
		return
	}
	limit, began := r.fleet.Rollout.Pause, time.Now()
	r.fleet.emit(report.Record{Progress: &report.Progress{
		Time: began, Phase: report.Pause,
		Text: fmt.Sprintf("waiting %v before %s, the next of %d (--pause)", limit, r.nodes[w.From].node.Name, len(r.nodes)),
	}})
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	ended := &report.Phase{Time: time.Now(), Name: report.Pause, OK: true, Seconds: time.Since(began).Seconds()}
	if ctx.Err() != nil {
		ended.OK, ended.Detail = false, "interrupted"
	}
	r.fleet.emit(report.Record{Phase: ended})
}
