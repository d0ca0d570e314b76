package deploy

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/activate"
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

	conn *ssh.Conn
	// system is the Nix system that the wanted toplevel is for.
	system string
	host   facts.Host // as the probe saw it
	notes  []string   // of good phases, for the result
	// before and after are the host as first and last seen; nil while it was not.
	before, after *verdict.Host
}

// step is what a phase came to. end is nil when the deploy goes on.
type step struct {
	detail string
	notes  []string
	end    *verdict.Decision
}

func end(v verdict.Verdict, reason string) step {
	return step{end: &verdict.Decision{Verdict: v, Reason: reason}}
}

// run is the body: activation first, boot entry last, and each verdict read
// from the host.
func (d *deployment) run(ctx context.Context) verdict.Decision {
	phases := []struct {
		name report.PhaseName
		run  func(context.Context) step
	}{
		{report.Connect, d.connect},
		{report.Probe, d.probe},
		{report.Copy, d.copy},
		{report.Switch, d.activate},
		{report.Finalize, d.finalize},
	}
	defer func() {
		if d.conn != nil {
			d.conn.Close()
		}
	}()
	for _, phase := range phases {
		began := time.Now()
		s := phase.run(ctx)
		record := &report.Phase{
			Time: time.Now(), Node: d.node.Name, Name: phase.name, OK: true,
			Seconds: time.Since(began).Seconds(), Detail: s.detail, Notes: s.notes,
		}
		if s.end != nil {
			record.OK = s.end.Verdict.Good()
			if record.Detail == "" {
				record.Detail = s.end.Reason
			}
		}
		d.notes = append(d.notes, s.notes...)
		d.fleet.Emit(report.Record{Phase: record})
		if s.end != nil {
			s.end.Notes = append(d.notes, s.end.Notes...)
			return *s.end
		}
	}
	return verdict.Decision{Verdict: verdict.Switched, Notes: d.notes}
}

// probe asks the host everything at once. A host that already is as wanted
// costs nothing more.
func (d *deployment) probe(ctx context.Context) step {
	var out bytes.Buffer
	err := d.conn.Run(ctx, ssh.Script{
		Doing:  "reading the host's state",
		Text:   facts.Functions + "observe '" + d.node.Toplevel + "'\n",
		Output: &out,
	})
	if err != nil {
		return d.unreached(ctx, err)
	}
	host, err := facts.Parse(out.Bytes())
	if err != nil {
		return end(verdict.Unusable, err.Error())
	}
	d.host, d.before = host, &host.Host
	if why := host.Unusable(); why != "" {
		return end(verdict.Unusable, why)
	}
	if !host.Runs(d.system) {
		return end(verdict.Refused, fmt.Sprintf("the system is for %s, the host is %s", d.system, host.Machine))
	}
	wanted := d.node.Toplevel
	boots, proven := host.Boots(wanted)
	if host.Finished(wanted) && boots && proven && host.Valid {
		s := end(verdict.Unchanged, "")
		d.after = d.before
		s.detail = fmt.Sprintf("generation %d already runs and boots", host.Generation)
		if len(host.FailedUnits) > 0 {
			s.notes = append(s.notes, "failed units: "+strings.Join(host.FailedUnits, ", "))
		}
		return s
	}
	detail := fmt.Sprintf("runs %s, generation %d", orNone(host.Running), host.Generation)
	switch {
	case host.Running == wanted && len(host.Lists) > 0:
		detail = "already runs the wanted system, but a switch left work to do: " + strings.Join(host.Lists, ", ")
	case host.Running == wanted:
		detail = "already runs the wanted system, but does not boot it"
	}
	return step{detail: detail}
}

func (d *deployment) copy(ctx context.Context) step {
	if d.host.Valid {
		return step{detail: "the closure is already on the host"}
	}
	began := time.Now()
	url, env := d.conn.NixStore(d.host.Tools["nix-daemon"])
	progress := d.lines(report.Copy, false)
	err := d.fleet.Copier.Copy(ctx, d.node.Toplevel, url, env, progress)
	progress.Flush()
	switch {
	case err != nil && ctx.Err() != nil:
		return end(verdict.NotStarted, "interrupted during the copy; the host was not changed")
	case err != nil:
		return end(verdict.CopyFailed, err.Error())
	}
	return step{detail: fmt.Sprintf("copied in %.1fs", time.Since(began).Seconds())}
}

// settled reports whether nothing is left to activate: the wanted system runs
// whole, and no unit fails that did not fail before its activation.
func (d *deployment) settled() bool {
	return d.host.Finished(d.node.Toplevel) &&
		!slices.ContainsFunc(d.host.FailedUnits, func(u string) bool {
			return d.host.Baseline && !slices.Contains(d.host.FailedBefore, u)
		})
}

func (d *deployment) activate(ctx context.Context) step {
	if d.settled() {
		return step{detail: "nothing to activate"}
	}
	if ctx.Err() != nil {
		return end(verdict.NotStarted, "interrupted before the switch; the host was not changed")
	}
	before := d.host.Host
	if before.Running == d.node.Toplevel && d.host.Baseline {
		before.FailedUnits = d.host.FailedBefore
	}
	r := d.supervised(activate.Test)
	r.Settle = d.fleet.Limits.Settle
	r.Limit = d.fleet.Limits.Switch
	if r.Limit == 0 && d.host.Container != "" {
		r.Limit = ContainerSwitchLimit
	}
	o, err := d.supervise(ctx, report.Switch, r)
	decision := verdict.Activation(d.node.Toplevel, before, o.Switch, o.Host.Host, o.Seen)
	explain(ctx, &decision, err)
	if decision.Verdict != verdict.Switched {
		return step{notes: reconnected(o), end: &decision}
	}
	return step{detail: "activated", notes: append(reconnected(o), decision.Notes...)}
}

func (d *deployment) finalize(ctx context.Context) step {
	if ctx.Err() != nil {
		return end(verdict.Unfinalized, "interrupted before the boot entry was made")
	}
	r := d.supervised(activate.Boot)
	r.Deadline = d.fleet.Limits.Finalize
	o, err := d.supervise(ctx, report.Finalize, r)
	decision := verdict.Finalization(d.node.Toplevel, o.ProfileError, o.Switch, o.Host.Host, o.Seen)
	explain(ctx, &decision, err)
	if decision.Verdict != verdict.Switched {
		return step{notes: reconnected(o), end: &decision}
	}
	notes := append(reconnected(o), decision.Notes...)
	if err := activate.Tidy(ctx, d.conn, d.id); err != nil {
		notes = append(notes, err.Error())
	}
	return step{detail: fmt.Sprintf("boots generation %d", o.Host.Generation), notes: notes}
}

func (d *deployment) supervised(action activate.Action) activate.Run {
	return activate.Run{
		ID: d.id, Action: action, Toplevel: d.node.Toplevel,
		Attempts: d.fleet.Limits.LockAttempts, Interval: d.fleet.Limits.LockInterval,
		Window: d.fleet.Limits.Reconnect,
	}
}

func (d *deployment) supervise(ctx context.Context, phase report.PhaseName, r activate.Run) (activate.Outcome, error) {
	log := d.lines(phase, true)
	o, err := activate.Supervise(ctx, d.conn, r, log)
	log.Flush()
	if o.Seen {
		d.after = &o.Host.Host
	}
	return o, err
}

// explain adds to an unknown end why nothing was seen of it.
func explain(ctx context.Context, decision *verdict.Decision, err error) {
	if decision.Verdict != verdict.Unknown || err == nil {
		return
	}
	if ctx.Err() != nil {
		decision.Reason = "interrupted; the switch was left alone and goes on. " + decision.Reason
		return
	}
	decision.Reason += "\n" + err.Error()
}

func reconnected(o activate.Outcome) []string {
	if o.Reconnects == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the connection was lost during the switch and made again (%d)", o.Reconnects)}
}

// lines passes on what a child or the host prints, as progress.
func (d *deployment) lines(phase report.PhaseName, fromHost bool) *report.Lines {
	return &report.Lines{Line: func(text string) {
		d.fleet.Emit(report.Record{Progress: &report.Progress{
			Time: time.Now(), Node: d.node.Name, Phase: phase, Text: text, FromHost: fromHost,
		}})
	}}
}

func orNone(path string) string {
	if path == "" {
		return "no NixOS system"
	}
	return path
}
