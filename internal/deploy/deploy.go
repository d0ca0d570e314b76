// Package deploy is the body that every node goes through, and the fleet that
// takes the nodes in their order, one by one or several at once.
//
// It is the only place that knows all phases. What a phase saw goes to
// package verdict, which decides; what happened goes out as records.
package deploy

import (
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Limits are the bounded waits of a switch.
type Limits struct {
	// LockAttempts and LockInterval are the retry budget for the lock of
	// switch-to-configuration (FR-009).
	LockAttempts int
	LockInterval time.Duration
	// Settle is how long after an activation failed units are looked for again.
	Settle time.Duration
	// Switch is the run time limit of the activation; 0 means none on a machine
	// and [ContainerSwitchLimit] in a container (FR-008).
	Switch time.Duration
	// Finalize is how long the making of the boot entry is waited for.
	Finalize time.Duration
	// Reconnect is how long new connections are tried when one is lost during a switch.
	Reconnect time.Duration
	// Reboot is how long a reboot may take until the host answers again.
	Reboot time.Duration
	// ProbeAge is how old a look at a host may be when something is first written
	// there; 0 means [DefaultProbeAge].
	ProbeAge time.Duration
}

// DefaultProbeAge is how old a look at a host may be where the operator says nothing.
const DefaultProbeAge = time.Minute

// Rollback says which generation to go back to.
type Rollback struct {
	// To is its number; 0 means the one before.
	To int
}

// ContainerSwitchLimit is the run time limit of an activation in a container.
const ContainerSwitchLimit = 15 * time.Minute

// DefaultLimits are the limits where the operator says nothing.
func DefaultLimits() Limits {
	return Limits{
		LockAttempts: 60,
		LockInterval: time.Second,
		Settle:       5 * time.Second,
		Finalize:     5 * time.Minute,
		Reconnect:    5 * time.Minute,
		Reboot:       10 * time.Minute,
		ProbeAge:     DefaultProbeAge,
	}
}

func (d *deployment) result(decision verdict.Decision) report.Result {
	row := decision.Verdict.Row()
	if d.transport != nil {
		if hint := d.transport.Hint(row.Verdict, d.host); hint != "" {
			row.Next = hint
		}
	}
	return report.Result{
		Time: time.Now(), Node: d.node.Name, Verdict: row.Verdict, Class: row.Class,
		HostChanged: row.HostChanged, Meaning: row.Meaning, Next: row.Next,
		Reason: decision.Reason, Notes: decision.Notes, Toplevel: d.node.Toplevel, Combined: d.node.Combined,
		From: state(d.before), To: state(d.after), Seconds: d.seconds,
	}
}

func state(h *verdict.Host) *report.State {
	if h == nil {
		return nil
	}
	return &report.State{Generation: h.Generation, Running: h.Running, Profile: h.Profile, BootEntry: h.BootEntry}
}
