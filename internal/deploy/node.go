package deploy

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// deployment is one node on its way through the phases.
type deployment struct {
	fleet *Fleet
	node  plan.Node
	id    string

	// transport is nil until the node is connected to, and so is login, its first connection.
	transport Transport
	login     *ssh.Conn
	// system is what the wanted toplevel says of itself; nothing until it is built.
	system closure.System
	// host is what the probe saw.
	host  facts.Host
	notes []string // of good phases, for the result
	// detail is what the last phase came to.
	detail string
	// seconds is how long all phases took.
	seconds float64
	// before and after are the host as first and last seen; nil while it was not.
	before, after *verdict.Host

	place turn
	sight sight
	// touched is whether anything may have been written on the host.
	touched bool
	// records are those of the node, held back until its turn.
	records outlet
}

// phase is a step with its name.
type phase struct {
	name report.PhaseName
	run  func(context.Context) step
}

// step is what a phase came to. end is nil when the deploy goes on.
type step struct {
	detail string
	notes  []string
	end    *verdict.Decision
	copied *report.Copied // of the copy alone
}

func end(v verdict.Verdict, reason string) step {
	return step{end: &verdict.Decision{Verdict: v, Reason: reason}}
}

// performed is a phase that has ended, and when.
type performed struct {
	step
	name    report.PhaseName
	at      time.Time
	seconds float64
}

// measure runs a phase.
func (p phase) measure(ctx context.Context) performed {
	began := time.Now()
	s := p.run(ctx)
	return performed{step: s, name: p.name, at: time.Now(), seconds: time.Since(began).Seconds()}
}

// conclude makes the record of a phase. It returns what ends the deploy; nil when it goes on.
func (d *deployment) conclude(p performed) *verdict.Decision {
	record := &report.Phase{
		Time: p.at, Node: d.node.Name, Name: p.name, OK: true,
		Seconds: p.seconds, Detail: p.detail, Notes: p.notes, Copied: p.copied,
	}
	if p.end != nil {
		record.OK = p.end.Verdict.Good()
		if record.Detail == "" {
			record.Detail = p.end.Reason
		}
	}
	d.notes = append(d.notes, p.notes...)
	d.detail = p.detail
	d.seconds += p.seconds
	d.emit(report.Record{Phase: record})
	if p.end != nil {
		p.end.Notes = append(d.notes, p.end.Notes...)
	}
	return p.end
}

func (d *deployment) perform(ctx context.Context, p phase) *verdict.Decision {
	return d.conclude(p.measure(ctx))
}

// deploy is the body: activation first, boot entry last, and each verdict read
// from the host. The look at the host may have been taken before.
func (d *deployment) deploy(ctx context.Context) verdict.Decision {
	end := d.meet(ctx)
	for _, phase := range d.work() {
		if end != nil {
			return *end
		}
		end = d.advance(ctx, phase)
	}
	if end != nil {
		return *end
	}
	return d.accomplished()
}

// accomplished is the end of a deploy whose phases have all gone well.
func (d *deployment) accomplished() verdict.Decision {
	if d.fleet.Goal == GoalSwitch || d.fleet.Reboot && d.fleet.Goal.boots() {
		return verdict.Decision{Verdict: verdict.Switched, Notes: d.notes}
	}
	return verdict.Decision{Verdict: verdict.Staged, Reason: d.detail, Notes: d.notes}
}

// close ends the connection.
func (d *deployment) close() {
	if d.transport != nil {
		d.transport.Close()
	}
}

// probe asks the host everything at once. A host that already is as wanted
// costs nothing more.
func (d *deployment) probe(ctx context.Context) step {
	host, err := d.observe(ctx)
	if err != nil {
		return d.unreached(ctx, err)
	}
	d.host, d.before = host, &host.Host
	usable := host
	if d.fleet.Goal == GoalPush {
		usable.UID = 0 // a trusted user may push
	}
	if why := usable.Unusable(); why != "" {
		return end(verdict.Unusable, why)
	}
	if d.fleet.Rollback != nil {
		switch {
		case host.Chosen == "" && d.fleet.Rollback.To > 0:
			return end(verdict.Refused, fmt.Sprintf("the host has no generation %d", d.fleet.Rollback.To))
		case host.Chosen == "":
			return end(verdict.Refused, "the host has no earlier generation to go back to")
		case !host.Valid:
			return end(verdict.Refused, fmt.Sprintf("generation %d of the host, %s, is not whole in its store", host.ChosenGeneration, host.Chosen))
		}
		d.node.Toplevel = host.Chosen
	}
	if why := d.unfit(); why != "" {
		return end(verdict.Refused, why)
	}
	if detail := d.already(); detail != "" {
		s := end(verdict.Unchanged, "")
		d.after = d.before
		s.detail = detail
		if len(host.FailedUnits) > 0 {
			s.notes = append(s.notes, "failed units: "+strings.Join(host.FailedUnits, ", "))
		}
		s.notes = append(s.notes, d.rebootAdvised(host)...)
		return s
	}
	return step{detail: d.finding()}
}

// unfit says why the host would not take the wanted system, as far as that is known;
// empty when nothing is against it.
func (d *deployment) unfit() string {
	host := d.host
	if !host.Runs(d.system.Platform) {
		return fmt.Sprintf("the system is for %s, the host is %s", d.system.Platform, host.Machine)
	}
	if !d.fleet.Goal.activates() || host.Running == d.node.Toplevel {
		return ""
	}
	return verdict.Foreseen(verdict.Identity{Interface: host.Interface, Inhibitors: host.Inhibitors},
		verdict.Identity{Interface: d.system.Interface, Inhibitors: d.system.Inhibitors}, d.fleet.NoCheck)
}

// observe runs the one script that reads a host.
func (d *deployment) observe(ctx context.Context) (facts.Host, error) {
	return d.ask(ctx, d.question())
}

// ask runs a script that ends in an observation.
func (d *deployment) ask(ctx context.Context, question string) (facts.Host, error) {
	var out bytes.Buffer
	err := d.transport.Run(ctx, ssh.Script{
		Doing:  "reading the host's state",
		Text:   question,
		Output: &out,
	})
	if err != nil {
		return facts.Host{}, err
	}
	host, err := facts.Parse(out.Bytes())
	if err != nil {
		return facts.Host{}, &ssh.Error{Kind: ssh.Noise, Doing: "reading the host's state", Words: err.Error()}
	}
	return host, nil
}

// question is the script that reads the host. Going back, the host itself knows to where.
func (d *deployment) question() string {
	if d.fleet.Rollback != nil && d.node.Toplevel == "" {
		return facts.ObserveEarlier(d.fleet.Rollback.To)
	}
	return facts.Observe(d.node.Toplevel)
}

// already says that the host is as wanted; empty when it isn't, can't be proven
// to be, or when a switch is under way that may change it.
func (d *deployment) already() string {
	wanted, host := d.node.Toplevel, d.host
	boots, proven := host.Boots(wanted)
	runs := d.settled()
	boots = boots && proven
	if !host.Valid || host.LockHolder != "" || d.anyRunning() {
		return ""
	}
	switch {
	case d.fleet.Goal == GoalTest && runs:
		return "already runs the wanted system"
	case d.fleet.Goal == GoalBoot && boots && (runs || !d.fleet.Reboot):
		return fmt.Sprintf("generation %d already boots", host.Generation)
	case d.fleet.Goal == GoalSwitch && runs && boots:
		return fmt.Sprintf("generation %d already runs and boots", host.Generation)
	}
	return ""
}

// anyRunning reports whether another deploy works on the host right now.
func (d *deployment) anyRunning() bool {
	for _, r := range d.host.Records {
		if r.State == "running" {
			return true
		}
	}
	return false
}

// settled reports whether nothing is left to activate: the wanted system runs
// whole, and no activation is on record that has not ended well. Where one is, it
// is done again and judged against the host as it was before it.
func (d *deployment) settled() bool {
	return d.host.Finished(d.node.Toplevel) && !d.unproven()
}

// unproven reports whether the host is in the middle of things: an activation was
// begun that has not ended well. The note of one is void once somebody has brought
// the host to a third system that it runs and boots.
func (d *deployment) unproven() bool {
	h := d.host
	boots, proven := h.Boots(h.Running)
	third := h.Running != h.BaselineOf && h.Running != h.BaselineOver
	return h.Baseline && !(third && boots && proven)
}

// finding says how the host differs from what is wanted.
func (d *deployment) finding() string {
	host := d.host
	switch {
	case host.Running != d.node.Toplevel:
		running := host.Running
		if running == "" {
			running = "no NixOS system"
		}
		return fmt.Sprintf("runs %s, generation %d", running, host.Generation)
	case len(host.Lists) > 0:
		return "already runs the wanted system, but a switch left work to do: " + strings.Join(host.Lists, ", ")
	case !d.settled():
		return "already runs the wanted system, but its activation was not seen to end well"
	case d.anyRunning():
		return "already runs the wanted system, but another deploy is under way"
	case host.LockHolder != "":
		return "already runs the wanted system, but the lock of switch-to-configuration is held by " + host.LockHolder
	}
	switch boots, proven := host.Boots(d.node.Toplevel); {
	case !proven:
		return "already runs the wanted system, but what it boots is not to be read"
	case boots:
		return "already runs and boots the wanted system"
	}
	return "already runs the wanted system, but does not boot it"
}

func (d *deployment) rebootAdvised(host facts.Host) []string {
	if len(host.NeedsReboot) == 0 || host.Container != "" {
		return nil
	}
	return []string{"reboot advised: the new " + strings.Join(host.NeedsReboot, ", ") + " will run only then"}
}

// lines passes on what a child or the host prints, as progress.
func (d *deployment) lines(phase report.PhaseName, fromHost bool) *report.Lines {
	return &report.Lines{Line: func(text string) { d.progress(phase, text, fromHost) }}
}

func (d *deployment) progress(phase report.PhaseName, text string, fromHost bool) {
	d.records.pass(d.fleet, report.Record{Progress: &report.Progress{
		Time: time.Now(), Node: d.node.Name, Phase: phase, Text: text, FromHost: fromHost,
	}})
}
