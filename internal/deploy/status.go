package deploy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// statusesAtOnce bounds how many hosts are asked at the same time.
const statusesAtOnce = 16

// Status asks each node's host what it runs and boots; nothing is changed. The
// hosts are asked side by side, and there is one status for each node, in order.
func (f *Fleet) Status(ctx context.Context, nodes []plan.Node) []report.Status {
	all := make([]report.Status, len(nodes))
	work := pool.New().WithMaxGoroutines(statusesAtOnce)
	for i, node := range nodes {
		work.Go(func() { all[i] = f.status(ctx, node) })
	}
	work.Wait()
	for i := range all {
		f.Emit(report.Record{Status: &all[i]})
	}
	return all
}

func (f *Fleet) status(ctx context.Context, node plan.Node) report.Status {
	began := time.Now()
	s := report.Status{Node: node.Name, Wanted: node.Toplevel, Drift: []string{}, FailedUnits: []string{}, Lists: []string{}, NeedsReboot: []string{}, Runs: []string{}, Generations: []report.Generation{}}
	d := &deployment{fleet: f, node: node}
	if id := d.identity(); id == nil {
		s.Verdict, s.Reason = verdict.EvalFailed, node.EvalError
	} else if conn, err := id.Connect(ctx); err != nil {
		failed := d.unreached(ctx, err).end
		s.Verdict, s.Reason = failed.Verdict, failed.Reason
	} else {
		d.transport = sshTransport{Conn: conn}
		defer d.transport.Close()
		host, err := d.ask(ctx, facts.ObserveAll(d.node.Toplevel))
		if err != nil {
			failed := d.unreached(ctx, err).end
			s.Verdict, s.Reason = failed.Verdict, failed.Reason
		} else if why := wrongHost(host, node.Expect); why != "" {
			s.Verdict, s.Reason = verdict.WrongHost, why
		} else {
			describe(&s, host)
		}
	}
	s.Time, s.Seconds = time.Now(), time.Since(began).Seconds()
	return s
}

// describe fills a status from what was seen.
func describe(s *report.Status, h facts.Host) {
	s.State = *state(&h.Host)
	s.Booted, s.Container, s.LockHolder = h.Booted, h.Container, h.LockHolder
	s.FailedUnits = append(s.FailedUnits, h.FailedUnits...)
	s.Lists = append(s.Lists, h.Lists...)
	s.Label = h.Label
	if h.Container == "" {
		s.NeedsReboot = append(s.NeedsReboot, h.RebootPending...)
	}
	for _, g := range h.Past {
		s.Generations = append(s.Generations, report.Generation{Number: g.Number, Time: g.Made, System: g.System, Label: g.Label})
	}
	for _, r := range h.Records {
		how := map[string]string{"running": "is running", "cut": "was cut off"}[r.State]
		if r.State == "ended" {
			how = "ended with " + r.ExitStatus
		}
		s.Runs = append(s.Runs, fmt.Sprintf("%s %s: %s", r.ID, r.Name, how))
		// Their names begin with the time, so the last one of the list is the last run.
		s.LastRun = &report.HostRun{ID: r.ID, Name: r.Name, State: r.State, ExitStatus: r.ExitStatus, System: r.Toplevel}
	}
	if h.UnitsUnread != "" {
		s.FailedUnits = append(s.FailedUnits, "(not to be read: "+h.UnitsUnread+")")
	}
	wanted := s.Wanted
	boots, proven := h.Boots(h.Running)
	switch {
	case wanted == "" && h.Running == "":
		s.Drift = append(s.Drift, "runs no NixOS system")
	case wanted != "" && h.Running != wanted:
		s.Drift = append(s.Drift, "runs another system")
	}
	if wanted != "" {
		boots, proven = h.Boots(wanted)
	}
	if !boots && proven {
		s.Drift = append(s.Drift, "boots another system")
	}
	if len(h.Lists) > 0 {
		s.Drift = append(s.Drift, "a switch was not finished ("+strings.Join(h.Lists, ", ")+")")
	}
}
