package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/activate"
	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

func (d *deployment) dryActivate(ctx context.Context) step {
	if ctx.Err() != nil {
		return end(verdict.NotStarted, "interrupted before the dry run; the host was not changed")
	}
	r := d.supervised(activate.DryActivate)
	r.Limit = d.transport.SwitchLimit(d.host)
	o, err := d.supervise(ctx, report.DryActivate, r)
	decision := verdict.DryRun(o.Switch, o.Seen)
	explain(ctx, &decision, err)
	return step{notes: reconnected(o), end: &decision}
}

func (d *deployment) activate(ctx context.Context) step {
	if d.settled() && !d.anyRunning() && d.host.LockHolder == "" {
		return step{detail: "nothing to activate"}
	}
	if ctx.Err() != nil {
		return end(verdict.NotStarted, "interrupted before the switch; the host was not changed")
	}
	before := d.host.Host
	if d.unproven() {
		before.FailedUnits = d.host.FailedBefore
	}
	r := d.supervised(activate.Test)
	r.FreshBaseline = !d.unproven()
	r.Settle = d.fleet.Limits.Settle
	r.Limit = d.transport.SwitchLimit(d.host)
	r.Confirm, r.Old = d.fleet.Confirm, before.Running
	var notes []string
	if other := d.host.Living(string(activate.Test), d.node.Toplevel); other != nil {
		// Somebody else's deploy of the same system: its result is as good as ours.
		r.ID, r.Attach, r.Confirm = other.ID, true, 0
		notes = append(notes, "another deploy of this system was under way (run "+other.ID+") and was followed")
	}
	o, err := d.supervise(ctx, report.Switch, r)
	notes = append(notes, reconnected(o)...)
	decision := verdict.Activation(verdict.Activated{
		Wanted: d.node.Toplevel, Before: before, Switch: o.Switch, After: o.Host.Host, Seen: o.Seen, Ignore: d.node.Ignores,
	})
	explain(ctx, &decision, err)
	if decision.Verdict == verdict.Unknown && r.Confirm > 0 {
		decision.Reason += fmt.Sprintf("; since nobody confirms it, the host goes back to its old system %v after the activation", r.Confirm)
	}
	if decision.Verdict == verdict.Degraded && d.fleet.AcceptDegraded {
		notes = append(notes, "accepted: "+decision.Reason)
		decision.Verdict, decision.Reason = verdict.Switched, ""
	}
	if o.Seen && o.Switch.NotScheduled == "" {
		decision = d.confirm(ctx, r, o, decision)
	}
	if decision.Verdict != verdict.Switched {
		if where := before.Reboots(d.node.Toplevel); where != "" {
			decision.Notes = append(decision.Notes, where)
		}
		return step{notes: notes, end: &decision}
	}
	notes = append(append(notes, decision.Notes...), d.rebootAdvised(o.Host)...)
	return step{detail: "activated", notes: notes}
}

// confirm makes sure that somebody can still log in to a host that was changed,
// and tells it so where it waits for that.
func (d *deployment) confirm(ctx context.Context, r activate.Run, o activate.Outcome, decision verdict.Decision) verdict.Decision {
	if o.Host.Running != d.node.Toplevel && r.Confirm == 0 {
		return decision
	}
	back, err := activate.Confirm(ctx, d.transport, decision.Verdict == verdict.Switched)
	// What the switch itself came to is not forgotten over a login that fails.
	judged := ""
	if decision.Reason != "" {
		judged = "; before that: " + decision.Reason
	}
	switch {
	case err == nil && !back:
		return decision
	case r.Confirm == 0 && err == nil:
		return verdict.Decision{Verdict: verdict.Superseded, Reason: "an earlier deploy, which nobody had confirmed, takes the host back to its old system" + judged, Notes: decision.Notes}
	case r.Confirm == 0 && ctx.Err() != nil:
		return verdict.Decision{Verdict: verdict.Unknown, Reason: "interrupted before a fresh login was tried; the host runs the wanted system" + judged}
	case r.Confirm == 0:
		return verdict.Decision{Verdict: verdict.NoLogin, Reason: err.Error() + judged, Notes: decision.Notes}
	}
	why := "the host had already decided"
	if err != nil {
		why = err.Error()
	}
	d.progress(report.Switch, "no fresh login confirmed the switch ("+why+"): waiting for the host to go back", false)
	log := d.lines(report.Switch, true)
	returned, err := activate.Return(ctx, d.transport, r, activate.Sink{Log: log})
	log.Flush()
	if returned.Seen {
		d.after = &returned.Host.Host
	}
	if returned.Seen && returned.Host.Running == r.Old && r.Old != d.node.Toplevel {
		return verdict.Decision{Verdict: verdict.RolledBack, Reason: why + judged, Notes: decision.Notes}
	}
	decision = verdict.Decision{Verdict: verdict.Unknown, Reason: "no fresh login confirmed the switch (" + why + "), and the host was not seen to go back"}
	if returned.Seen {
		decision.Reason += "; it runs " + returned.Host.Running
	}
	explain(ctx, &decision, err)
	return decision
}

func (d *deployment) finalize(ctx context.Context) step {
	before := d.host.Host
	if d.after != nil {
		before = *d.after
	}
	if ctx.Err() != nil {
		if d.fleet.Goal == GoalBoot {
			return end(verdict.NotStarted, "interrupted before the boot entry was made; the host was not changed")
		}
		return end(verdict.Unfinalized, "interrupted before the boot entry was made")
	}
	r := d.supervised(activate.Boot)
	r.Running = before.Running
	r.Deadline = d.fleet.Limits.Finalize
	r.Generation = d.host.ChosenGeneration
	sink, flush := d.sink(report.Finalize)
	o, err := d.transport.Finalize(ctx, r, sink)
	flush()
	if o.Seen {
		d.after = &o.Host.Host
	}
	decision := verdict.Finalization(d.node.Toplevel, before, o.ProfileError, o.Switch, o.Host.Host, o.Seen)
	explain(ctx, &decision, err)
	notes := append(reconnected(o), decision.Notes...)
	if decision.Verdict != verdict.Switched {
		if err := d.transport.Revert(ctx); err != nil {
			notes = append(notes, "taking the boot entry back: "+err.Error())
		}
		return step{notes: notes, end: &decision}
	}
	return step{detail: fmt.Sprintf("boots generation %d", o.Host.Generation), notes: notes}
}

// reboot reboots the host and waits until it answers with another boot id.
func (d *deployment) reboot(ctx context.Context) step {
	old := d.after
	if old == nil {
		old = d.before
	}
	if ctx.Err() != nil {
		return end(verdict.Staged, "interrupted before the reboot; the boot entry is made")
	}
	// Without a time limit of ours the host may take its time for stopping units;
	// the answer, if it comes at all, comes before the connection goes.
	err := d.transport.Run(ctx, ssh.Script{Doing: "rebooting the host", Text: "systemctl reboot\n", Timeout: time.Minute})
	var refused *ssh.ExitError
	if errors.As(err, &refused) {
		return end(verdict.Refused, "the boot entry is made, but the reboot was refused: "+err.Error())
	}
	limit := d.fleet.Limits.Reboot
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not back within %v", limit))
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return end(verdict.Unknown, "rebooting the host: "+context.Cause(ctx).Error())
		case <-time.After(time.Second):
		}
		if d.transport.Reopen(ctx) != nil {
			continue
		}
		host, err := d.observe(ctx)
		if err != nil || host.BootID == old.BootID {
			continue
		}
		if host, err = d.booted(ctx); err != nil {
			continue
		}
		d.after = &host.Host
		return d.afterReboot(*old, host)
	}
}

// booted waits until the host has finished booting, and looks at it once its units
// have settled. A boot that hangs is looked at as it is after two minutes.
func (d *deployment) booted(ctx context.Context) (facts.Host, error) {
	err := d.transport.Run(ctx, ssh.Script{
		Doing:   "waiting for the end of the boot",
		Text:    fmt.Sprintf("timeout 120 systemctl is-system-running --wait >/dev/null 2>&1\nsleep %g\n", d.fleet.Limits.Settle.Seconds()),
		Timeout: 3*time.Minute + d.fleet.Limits.Settle,
	})
	if err != nil {
		return facts.Host{}, err
	}
	return d.observe(ctx)
}

// afterReboot judges a host that has rebooted against what it was before.
func (d *deployment) afterReboot(old verdict.Host, host facts.Host) step {
	if host.Running != d.node.Toplevel {
		return end(verdict.Rebooted, "the host rebooted into "+host.Running)
	}
	if host.UnitsUnread != "" {
		return end(verdict.Unknown, "the host rebooted into the wanted system, but its failed units could not be listed: "+host.UnitsUnread)
	}
	var failed []string
	for _, unit := range host.FailedUnits {
		if !slices.Contains(old.FailedUnits, unit) && !d.node.Ignores(unit) {
			failed = append(failed, unit)
		}
	}
	s := step{detail: fmt.Sprintf("rebooted into generation %d", host.Generation)}
	switch {
	case len(failed) > 0 && !d.fleet.AcceptDegraded:
		return end(verdict.Degraded, "rebooted into the wanted system, and these units failed that did not fail before: "+strings.Join(failed, ", "))
	case len(failed) > 0:
		s.notes = []string{"accepted: failed units after the reboot: " + strings.Join(failed, ", ")}
	}
	return s
}

func (d *deployment) supervised(action activate.Action) activate.Run {
	return activate.Run{
		ID: d.id, Action: action, Toplevel: d.node.Toplevel, BootID: d.host.BootID, Running: d.host.Running,
		Attempts: d.fleet.Limits.LockAttempts, Interval: d.fleet.Limits.LockInterval,
		Window: d.fleet.Limits.Reconnect, NoCheck: d.fleet.NoCheck,
	}
}

func (d *deployment) supervise(ctx context.Context, phase report.PhaseName, r activate.Run) (activate.Outcome, error) {
	sink, flush := d.sink(phase)
	o, err := activate.Supervise(ctx, d.transport, r, sink)
	flush()
	if o.Seen {
		d.after = &o.Host.Host
	}
	return o, err
}

// sink passes on what a run says; flush takes a last line without an end.
func (d *deployment) sink(phase report.PhaseName) (sink activate.Sink, flush func()) {
	log := d.lines(phase, true)
	return activate.Sink{Log: log, Waiting: func(jobs []string, since time.Duration) {
		what := "the switch goes on, with no job of systemd running"
		if len(jobs) > 0 {
			what = "systemd is still at: " + strings.Join(jobs, ", ")
		}
		d.progress(phase, fmt.Sprintf("%s (%v)", what, since), false)
	}}, log.Flush
}

// explain adds to an unknown end why nothing was seen of it.
func explain(ctx context.Context, decision *verdict.Decision, err error) {
	if decision.Verdict != verdict.Unknown || err == nil {
		return
	}
	if ctx.Err() != nil {
		decision.Reason = "interrupted; the switch was left alone and goes on; " + decision.Reason
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
