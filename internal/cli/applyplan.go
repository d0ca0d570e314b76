package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/planfile"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// decided are the flags of apply that a plan has decided about.
var decided = []string{"on", "exclude", "store-path", "retry-failed", "combined", "print-build-logs", "build-timeout", "build-on-target"}

// refOrPlan takes one flake reference or, with --plan, none.
func refOrPlan(cmd *cobra.Command, args []string) error {
	if !cmd.Flags().Changed("plan") {
		return refAndNixArgs(cmd, args)
	}
	own := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		own = args[:dash]
	}
	if len(own) > 0 {
		return usageError{fmt.Errorf("%q with --plan: the plan names its map", own[0])}
	}
	for _, name := range decided {
		if cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s with --plan: the plan has decided which nodes get which systems; what differs needs a plan of its own", name)}
		}
	}
	return nil
}

// applyPlan deploys what a plan file says: no system is evaluated. The map's settings
// are read again, since a plan is not to be applied to a map that has changed.
func (f *applyFlags) applyPlan(ctx context.Context, p Process, nixArgs []string) error {
	began := time.Now()
	if err := f.check(); err != nil {
		return err
	}
	if f.goal == deploy.GoalBuild {
		return usageError{fmt.Errorf("--goal build with --plan: what a plan has is built")}
	}
	plan, err := readPlan(p, f.planFile, began)
	if err != nil {
		return err
	}
	switch {
	case plan.Source.NixArgs != (len(nixArgs) > 0):
		had := "with arguments for Nix behind --, which a plan doesn't keep: give the same ones"
		if !plan.Source.NixArgs {
			had = "without arguments for Nix: give none"
		}
		return usageError{fmt.Errorf("the plan %s was made %s", f.planFile, had)}
	case f.impure && !plan.Source.Impure:
		return usageError{fmt.Errorf("--impure: the plan %s was made without", f.planFile)}
	}
	f.combined = plan.Source.Combined
	if err := whole(ctx, p, f.planFile, plan); err != nil {
		return err
	}
	out := newOutput(p, f.json, f.noProgress, f.verbose)
	f.begin(p, out, &f.mapFlags, "apply", plan.Source.Ref, plan.Source.Dir, nixArgs, began)
	defer out.close()
	again, err := f.replan(ctx, p, out, plan, nixArgs)
	if err != nil {
		return err
	}
	// Paths of key files mean what they meant then, wherever the plan is applied from.
	there := p
	there.Dir = plan.Source.Dir
	m, err := f.ways(ctx, there, again)
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	// Nothing is left to build: this keeps the systems from being collected meanwhile.
	buildErrors, err := f.build(ctx, p, out, m.dir, m.nodes, m.options)
	if err != nil {
		return err
	}
	if err := f.results.kept(ctx, p, m.nodes, buildErrors); err != nil {
		return err
	}
	fleet := f.copying(p, out, m)
	fleet.Planned = sightings(plan)
	failed := unbuilt(plan)
	maps.Copy(failed, buildErrors)
	results := fleet.Run(ctx, m.work.Nodes, failed)
	defer sayStale(p, results)
	return finish(ctx, p, out, results, began)
}

// sayStale names all hosts that were left alone, since one plan more is what they all
// need.
func sayStale(p Process, results []report.Result) {
	var nodes []string
	for _, r := range results {
		if r.Verdict == verdict.Stale {
			nodes = append(nodes, r.Node)
		}
	}
	if len(nodes) > 0 {
		say(p.Stderr, "%d of %d hosts moved since the plan was made and were left alone; plan again: %s", len(nodes), len(results), strings.Join(nodes, ", "))
	}
}

// replan reads the map again, without its systems, and compares it with the plan's. No
// host is contacted.
func (f *applyFlags) replan(ctx context.Context, p Process, out *output, plan planfile.Plan, nixArgs []string) (loaded, error) {
	if _, err := os.Stat(plan.Source.Dir); err != nil {
		return loaded{}, fmt.Errorf("applying the plan %s: the directory that its map was read in: %w", f.planFile, err)
	}
	again := f.mapFlags
	again.impure = plan.Source.Impure
	if again.clientConfig = or(f.clientConfig, p.getenv(settings.KeyConfig)); again.clientConfig != "" {
		path, err := filepath.Abs(p.path(again.clientConfig))
		if err != nil {
			return loaded{}, err
		}
		again.clientConfig = path
	}
	p.Dir = plan.Source.Dir
	var names []string
	for _, n := range plan.Nodes {
		names = append(names, n.Name)
		if plan.Source.Ref == "" {
			again.storePaths = append(again.storePaths, n.Name+"="+n.Toplevel)
		}
	}
	if !plan.Source.Whole && plan.Source.Ref != "" && !plan.Source.Combined {
		again.on = names
	}
	m, err := again.load(ctx, p, out, flake.Request{Ref: plan.Source.Ref, Args: nixArgs, SettingsOnly: true})
	if err != nil {
		return m, fmt.Errorf("reading the map of the plan %s again: %w", f.planFile, err)
	}
	config, err := configSum(m.clientConfig)
	if err != nil {
		return m, err
	}
	now := planfile.Now{Others: m.work.LeftOut, ClientConfig: config}
	for _, n := range m.work.Nodes {
		if slices.Contains(names, n.Name) {
			now.Nodes = append(now.Nodes, n)
		} else {
			now.Others = append(now.Others, n.Name)
		}
	}
	changes := plan.Changes(now)
	if len(changes) > 0 {
		return m, fmt.Errorf("the map or the settings have changed since the plan %s was made; plan again:\n  %s", f.planFile, strings.Join(changes, "\n  "))
	}
	m.nodes = nil
	for i, n := range plan.Nodes {
		m.work.Nodes[i].Toplevel = n.Toplevel
		if n.Planned.Verdict == verdict.EvalFailed {
			m.work.Nodes[i].EvalError = or(n.Planned.Reason, "it did not evaluate")
		}
		if !n.Planned.Unbuildable() {
			m.nodes = append(m.nodes, flake.Node{Name: n.Name, Toplevel: n.Toplevel, Selected: true})
		}
	}
	return m, nil
}

// sightings are the hosts as the plan has seen them.
func sightings(plan planfile.Plan) map[string]verdict.Sighting {
	all := map[string]verdict.Sighting{}
	for _, n := range plan.Nodes {
		if now := n.Planned.Now; now != nil {
			all[n.Name] = verdict.Sighting{
				MachineID: now.MachineID, BootID: now.BootID, Running: now.Running, Profile: now.Profile,
				Generation: now.Generation, BootEntry: now.BootEntry,
			}
			continue
		}
		all[n.Name] = verdict.Sighting{Missed: strings.TrimSuffix(string(n.Planned.Verdict)+": "+n.Planned.Reason, ": ")}
	}
	return all
}

// unbuilt are the nodes whose systems did not build for the plan.
func unbuilt(plan planfile.Plan) map[string]error {
	all := map[string]error{}
	for _, n := range plan.Nodes {
		if n.Planned.Verdict == verdict.BuildFailed {
			all[n.Name] = fmt.Errorf("%s", or(n.Planned.Reason, "it did not build"))
		}
	}
	return all
}
