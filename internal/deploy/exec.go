package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Command is a program to run on hosts for its own sake.
type Command struct {
	// Args are the program and its arguments; see [ssh.Command].
	Args []string
	// Root runs it as root; else it is the login user's.
	Root bool
	// Limit is how long it may take on a node; 0 means no limit.
	Limit time.Duration
	// Parallel is how many nodes it runs on at once; at least 1.
	Parallel int
}

// errTooLong is the cause of a context whose command took too long.
var errTooLong = errors.New("took too long")

// Exec runs a command on each node, in order, so many at a time. One that fails does
// not stop the later ones; when ctx ends, those that had not begun are not started.
// There is one result for each node, in order.
func (f *Fleet) Exec(ctx context.Context, nodes []plan.Node, c Command) []report.Exec {
	all := make([]report.Exec, len(nodes))
	work := pool.New().WithMaxGoroutines(c.Parallel)
	for i, node := range nodes {
		work.Go(func() {
			d := &deployment{fleet: f, node: node}
			began := time.Now()
			all[i] = d.exec(ctx, c)
			all[i].Time, all[i].Node, all[i].Seconds = time.Now(), node.Name, time.Since(began).Seconds()
			d.emit(report.Record{Exec: &all[i]})
		})
	}
	work.Wait()
	return all
}

// exec runs the command on the node, once the host has proved to be the one meant.
func (d *deployment) exec(ctx context.Context, c Command) report.Exec {
	without := func(s step) report.Exec {
		return report.Exec{Verdict: s.end.Verdict, Reason: s.end.Reason, Notes: s.notes}
	}
	if ctx.Err() != nil {
		return report.Exec{Verdict: verdict.NotStarted, Reason: "the run was interrupted"}
	}
	if s := d.unpinned(); s.end != nil {
		return without(s)
	}
	conn, err := d.identity().Connect(ctx)
	if err != nil {
		return without(d.unreached(ctx, err))
	}
	defer conn.Close()
	d.login = conn
	if s := d.identify(ctx, conn, c.Root); s.end != nil {
		return without(s)
	}
	notes := slices.Concat(d.identity().Notes, conn.Notes, d.slow(step{}).notes)

	limited, cancel := ctx, context.CancelFunc(func() {})
	if c.Limit > 0 {
		limited, cancel = context.WithTimeoutCause(ctx, c.Limit, errTooLong)
	}
	defer cancel()
	stdout, stderr := d.pieces(report.Stdout), d.pieces(report.Stderr)
	status, err := conn.Exec(limited, ssh.Command{Doing: "running the command", Args: c.Args, Root: c.Root, Stdout: stdout, Stderr: stderr})
	stdout.Flush()
	stderr.Flush()
	e := commanded(status, err, ctx.Err() != nil, c.Limit)
	e.Notes = notes
	return e
}

// commanded judges how a command ended that was begun. err is that of [ssh.Conn.Exec].
func commanded(status int, err error, interrupted bool, limit time.Duration) report.Exec {
	var way *ssh.Error
	switch {
	case err == nil:
		return report.Exec{Status: &status}
	case errors.As(err, &way) && way.Kind == ssh.ElevationRefused:
		return report.Exec{Verdict: verdict.ElevationRefused, Reason: err.Error()}
	case interrupted:
		return report.Exec{Verdict: verdict.Unknown, Reason: "interrupted; the command was told to end"}
	case errors.Is(err, errTooLong):
		return report.Exec{Verdict: verdict.TimedOut, Reason: fmt.Sprintf("running the command: it did not end within %v, and was told to end", limit)}
	}
	return report.Exec{Verdict: verdict.Unknown, Reason: err.Error() + "; the host tells the command to end, but nobody saw how it did"}
}

// identify makes sure, with the rights that the command gets, that the host is the one meant.
func (d *deployment) identify(ctx context.Context, conn *ssh.Conn, root bool) step {
	var out bytes.Buffer
	const doing = "asking the host who it is"
	err := conn.Run(ctx, ssh.Script{Doing: doing, Text: facts.Identify, Output: &out, AsLogin: !root})
	if err == nil {
		if d.host, err = facts.Parse(out.Bytes()); err != nil {
			err = &ssh.Error{Kind: ssh.Noise, Doing: doing, Words: err.Error()}
		}
	}
	if err != nil {
		return d.unreached(ctx, err)
	}
	if why := d.stranger(); why != "" {
		return end(verdict.WrongHost, why)
	}
	if root && d.host.UID != 0 {
		return end(verdict.ElevationRefused, fmt.Sprintf("--root: the login user has uid %d, and the node's elevate names no way to become root", d.host.UID))
	}
	return step{}
}

// pieces passes on what a command prints.
func (d *deployment) pieces(stream report.Stream) *report.Pieces {
	return &report.Pieces{Piece: func(piece []byte, open bool) {
		o := report.NewOutput(d.node.Name, stream, piece, open)
		d.fleet.emit(report.Record{Output: &o})
	}}
}
