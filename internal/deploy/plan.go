package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/deploy-ssh/deploy-ssh/internal/activate"
	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/packages"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// PlanOptions say how much a plan asks.
type PlanOptions struct {
	// DryActivate asks systems that are on their host already what their activation
	// would do to units.
	DryActivate bool
	// NotBuilt says that systems were not built for the plan, so that they may be
	// missing from the deployer's store.
	NotBuilt bool
}

// Plan tells of each node what Run would do; no host is changed. The hosts are asked
// side by side, each over one connection, and there is one record for each node, in
// order. buildErrors has the nodes that did not build.
//
// The first phases are those of a deploy, so the two can't disagree.
func (f *Fleet) Plan(ctx context.Context, nodes []plan.Node, buildErrors map[string]error, options PlanOptions) []report.Planned {
	f.Goal = GoalSwitch
	all := make([]report.Planned, len(nodes))
	work := pool.New().WithMaxGoroutines(statusesAtOnce)
	for i, node := range nodes {
		work.Go(func() { all[i] = f.planned(ctx, node, buildErrors[node.Name], options) })
	}
	work.Wait()
	twins(all)
	for i := range all {
		f.emit(report.Record{Planned: &all[i]})
	}
	return all
}

// twins marks nodes whose hosts turn out to be the machine of a node before them, as a
// deploy would.
func twins(all []report.Planned) {
	first := map[string]string{}
	for i := range all {
		p := &all[i]
		if p.Now == nil || p.Now.MachineID == "" {
			continue
		}
		if other, ok := first[p.Now.MachineID]; ok {
			foresee(p, verdict.Decision{Verdict: verdict.WrongHost, Reason: twin(p.Now.MachineID, other)})
			p.Now, p.Actions = nil, []report.Action{}
			continue
		}
		first[p.Now.MachineID] = p.Node
	}
}

// planned is the plan of one node.
func (f *Fleet) planned(ctx context.Context, node plan.Node, failed error, options PlanOptions) report.Planned {
	began := time.Now()
	p := report.Planned{
		Node: node.Name, Host: node.SSH.Host.V, User: node.SSH.User.V, Wanted: node.Toplevel,
		Actions: []report.Action{}, NeedsReboot: []string{}, Warnings: []string{},
	}
	d := &deployment{fleet: f, node: node, id: activate.NewID(began)}
	switch {
	case ctx.Err() != nil:
		foresee(&p, verdict.Decision{Verdict: verdict.NotStarted, Reason: "the run was interrupted"})
	case node.EvalError != "":
		foresee(&p, verdict.Decision{Verdict: verdict.EvalFailed, Reason: node.EvalError})
	case failed != nil:
		foresee(&p, verdict.Decision{Verdict: verdict.BuildFailed, Reason: failed.Error()})
	default:
		d.plan(ctx, &p, options)
	}
	p.Time, p.Seconds = time.Now(), time.Since(began).Seconds()
	return p
}

// foresee sets how an apply would end.
func foresee(p *report.Planned, decision verdict.Decision) {
	row := decision.Verdict.Row()
	p.Verdict, p.Meaning, p.Next, p.Reason = row.Verdict, row.Meaning, row.Next, decision.Reason
}

// plan asks the host, up to where a deploy would begin to change it.
func (d *deployment) plan(ctx context.Context, p *report.Planned, options PlanOptions) {
	defer func() {
		if d.transport != nil {
			d.transport.Close()
		}
	}()
	p.Built = built(d.node.Toplevel)
	if p.Built {
		p.WantedLabel = labelOf(d.node.Toplevel)
	}
	connect := d.connect
	if !p.Built && options.NotBuilt {
		connect = d.reach
	}
	probe := func(ctx context.Context) step {
		s := d.probe(ctx)
		if d.before == nil {
			return s
		}
		if why := wrongHost(d.host, d.node.Expect); why != "" {
			return end(verdict.WrongHost, why)
		}
		return d.slow(s)
	}
	var s step
	for _, phase := range []func(context.Context) step{connect, probe} {
		s = phase(ctx)
		p.Warnings = append(p.Warnings, s.notes...)
		if s.end != nil {
			foresee(p, *s.end)
			break
		}
	}
	if id := d.identity(); id != nil && len(id.Weakened) > 0 {
		p.Warnings = append(p.Warnings, "the pinned host key is weakened by "+strings.Join(id.Weakened, ", "))
	}
	if d.before == nil || p.Verdict == verdict.WrongHost {
		return
	}
	describePlanned(p, d.host)
	p.Warnings = append(p.Warnings, d.unwell()...)
	if p.Verdict == verdict.Unchanged {
		p.Now.Label, p.NextGeneration = p.WantedLabel, d.host.Generation
		return
	}
	if p.Verdict == "" {
		p.Actions = d.actions()
	}
	if p.Built && (p.Verdict == "" || p.Verdict == verdict.Refused) {
		d.survey(ctx, p)
	}
	if options.DryActivate && p.Verdict == "" {
		d.preview(ctx, p)
	}
}

// actions are what a deploy would do to the host.
func (d *deployment) actions() []report.Action {
	var all []report.Action
	if !d.host.Valid {
		all = append(all, report.ActCopy)
	}
	if !d.settled() || d.anyRunning() || d.host.LockHolder != "" {
		all = append(all, report.ActActivate)
	}
	return append(all, report.ActBootEntry)
}

// unwell are true things of the host that an operator wants to know before a deploy.
func (d *deployment) unwell() []string {
	h := d.host
	var all []string
	if len(h.Lists) > 0 {
		all = append(all, "an earlier switch was not finished: it left "+strings.Join(h.Lists, ", "))
	}
	if d.unproven() {
		all = append(all, "an earlier activation has not ended well: "+h.BaselineOf)
	}
	for _, r := range h.Records {
		if r.State == "running" {
			all = append(all, fmt.Sprintf("another deploy is under way: run %s, %s of %s", r.ID, r.Name, r.Toplevel))
		}
	}
	if boots, proven := h.Boots(h.Running); h.Running != "" && proven && !boots {
		all = append(all, "the host does not boot what it runs")
	}
	return all
}

// survey adds what of the closure the host lacks and how it differs from what runs.
// Without an answer the plan stands, and says what is missing from it.
func (d *deployment) survey(ctx context.Context, p *report.Planned) {
	s, err := d.fleet.Copier.Survey(ctx, d.transport, d.node.Toplevel)
	var lost *ssh.Error
	switch {
	case errors.Is(err, closure.ErrNotBuilt):
		p.Built = false
		return
	case errors.As(err, &lost) && p.Verdict == "":
		foresee(p, *d.unreached(ctx, err).end)
		return
	case err != nil:
		p.Warnings = append(p.Warnings, "what would change could not be found out: "+err.Error())
		return
	}
	p.Now.Label = s.Label
	if s.Before != nil {
		changes := packages.Diff(s.Before, s.After)
		p.Packages = &changes
		p.Size = &report.SizeChange{Before: s.BeforeBytes, After: s.AfterBytes}
	}
	p.Copy = &report.ToCopy{
		Paths: len(s.After), Missing: s.Missing, NarBytes: s.MissingBytes,
		CachesAsked: s.CachesAsked, InCaches: s.InCaches, InCachesBytes: s.InCachesBytes,
	}
	p.Space = &report.Space{StoreFree: s.StoreFree, StoreNeeds: s.MissingBytes, BootFree: s.BootFree, BootNeeds: s.BootNeeds}
	if d.host.Container == "" {
		p.NeedsReboot = append([]string{}, s.NeedsReboot...)
	}
	p.NextGeneration = nextGeneration(d.host, s, d.node.Toplevel)
	p.Warnings = append(p.Warnings, s.Notes...)
	if s.Refusal != "" && s.Missing > 0 && p.Verdict == "" {
		foresee(p, verdict.Decision{Verdict: verdict.CopyFailed, Reason: s.Refusal})
		p.Actions = []report.Action{}
	}
}

// nextGeneration is the number of the wanted system's generation, as nix-env --set
// gives it: the newest one's where that leads to the system, else the one after it.
func nextGeneration(h facts.Host, s closure.Survey, wanted string) int {
	switch {
	case h.Profile == wanted:
		return h.Generation
	case s.NewestSystem == wanted:
		return s.Newest
	}
	return s.Newest + 1
}

// preview adds what the activation would do to units. A system that isn't on the host
// can't be asked, and a plan copies nothing.
func (d *deployment) preview(ctx context.Context, p *report.Planned) {
	if !d.host.Valid {
		p.NoUnits = "the system is not on the host yet, and a plan copies nothing; --goal push brings it there"
		return
	}
	u, err := activate.PreviewOf(ctx, d.transport, d.node.Toplevel)
	if err != nil {
		p.NoUnits = err.Error()
		return
	}
	list := func(names []string) []string { return append([]string{}, names...) }
	p.Units = &report.Units{
		Stop: list(u.Stop), Restart: list(u.Restart), Reload: list(u.Reload), Start: list(u.Start), Kept: list(u.Kept),
		Systemd: u.RestartsSystemd,
	}
}

// describePlanned fills in the host as it was seen.
func describePlanned(p *report.Planned, h facts.Host) {
	p.Now = &report.Seen{
		State: *state(&h.Host), Booted: h.Booted, BootID: h.BootID, MachineID: h.MachineID, LockHolder: h.LockHolder,
		FailedUnits: append([]string{}, h.FailedUnits...), Lists: append([]string{}, h.Lists...),
	}
	if h.Container == "" {
		p.NeedsReboot = append(p.NeedsReboot, h.NeedsReboot...)
	}
}

// built reports whether a toplevel is in the deployer's store.
func built(toplevel string) bool {
	_, err := os.Stat(toplevel)
	return toplevel != "" && err == nil
}

// labelOf is the nixos-version of a toplevel in the deployer's store.
func labelOf(toplevel string) string {
	text, err := os.ReadFile(filepath.Join(toplevel, "nixos-version"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
