// Package deploy is the body that every node goes through, and the fleet that
// takes the nodes one by one.
//
// It is the only place that knows all phases. What a phase saw goes to
// package verdict, which decides; what happened goes out as records.
package deploy

import (
	"context"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/activate"
	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
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
}

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
	}
}

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
	// Emit receives the records, one at a time and in order.
	Emit func(report.Record)

	machines machines
}

// Run deploys the nodes one at a time, in their order (FR-001). A node that
// fails does not stop the later ones (FR-002); when ctx ends, those that had
// not begun are not started. buildErrors has the nodes that did not build.
// There is one result for each node, in order.
func (f *Fleet) Run(ctx context.Context, nodes []plan.Node, buildErrors map[string]error) []report.Result {
	if f.Goal == "" {
		f.Goal = GoalSwitch
	}
	results := make([]report.Result, 0, len(nodes))
	for i, node := range nodes {
		began := time.Now()
		d := &deployment{fleet: f, node: node, id: activate.NewID(began)}
		var decision verdict.Decision
		switch failed := buildErrors[node.Name]; {
		case ctx.Err() != nil:
			decision = verdict.Decision{Verdict: verdict.NotStarted, Reason: "the run was interrupted"}
		default:
			f.Emit(report.Record{Announce: &report.Announce{
				Time: began, Node: node.Name, Index: i + 1, Total: len(nodes),
				Host: node.SSH.Host.V, User: node.SSH.User.V, Toplevel: node.Toplevel,
				Rollback: f.Rollback != nil,
			}})
			switch {
			case node.EvalError != "":
				decision = verdict.Decision{Verdict: verdict.EvalFailed, Reason: node.EvalError}
			case failed != nil:
				decision = verdict.Decision{Verdict: verdict.BuildFailed, Reason: failed.Error()}
			case f.Goal == GoalBuild:
				decision = verdict.Decision{Verdict: verdict.Staged, Reason: "built"}
			default:
				decision = d.run(ctx)
			}
		}
		result := d.result(decision, time.Since(began))
		d.emit(report.Record{Result: &result})
		results = append(results, result)
	}
	return results
}

func (d *deployment) result(decision verdict.Decision, took time.Duration) report.Result {
	row := decision.Verdict.Row()
	if d.transport != nil {
		if hint := d.transport.Hint(row.Verdict, d.host); hint != "" {
			row.Next = hint
		}
	}
	return report.Result{
		Time: time.Now(), Node: d.node.Name, Verdict: row.Verdict, Class: row.Class,
		HostChanged: row.HostChanged, Meaning: row.Meaning, Next: row.Next,
		Reason: decision.Reason, Notes: decision.Notes, Toplevel: d.node.Toplevel,
		From: state(d.before), To: state(d.after), Seconds: took.Seconds(),
	}
}

func state(h *verdict.Host) *report.State {
	if h == nil {
		return nil
	}
	return &report.State{Generation: h.Generation, Running: h.Running, Profile: h.Profile, BootEntry: h.BootEntry}
}
