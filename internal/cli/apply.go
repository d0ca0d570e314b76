package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// applyFlags are the flags of the main verb.
type applyFlags struct {
	mapFlags
	switchFlags
	buildFlags
	results  resultFlags
	copy     copyFlags
	planFile string
}

func (f *applyFlags) add(flags *pflag.FlagSet) {
	f.mapFlags.add(flags, "print the records of the run as JSON lines instead of the table")
	f.addSystems(flags)
	f.switchFlags.add(flags)
	f.buildFlags.add(flags)
	f.results.add(flags)
	f.copy.add(flags)
	flags.StringVar(&f.planFile, "plan", "", "apply the plan in `FILE`, as plan --out wrote it: its systems, on hosts that have not moved since")
}

// check refuses values that make no sense together, before anything is started.
func (f *applyFlags) check() error {
	if err := f.buildFlags.check(); err != nil {
		return err
	}
	if err := f.results.check(f.goal); err != nil {
		return err
	}
	if err := f.copy.check(); err != nil {
		return err
	}
	if err := f.mapFlags.check(); err != nil {
		return err
	}
	return f.switchFlags.check()
}

func newApply(p Process) *cobra.Command {
	f := &applyFlags{}
	cmd := &cobra.Command{
		Use:   "apply FLAKE#NODES [flags] [-- NIX ARGS]",
		Short: "Deploy the nodes of a map (the default verb)",
		Args:  refOrPlan,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("plan") {
				return f.applyPlan(cmd.Context(), p, args)
			}
			ref, nixArgs := source(args)
			return f.run(cmd.Context(), p, ref, nixArgs)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// run is a whole deploy: evaluate, plan, build, deploy, summary.
func (f *applyFlags) run(ctx context.Context, p Process, ref string, nixArgs []string) error {
	began := time.Now()
	if err := f.check(); err != nil {
		return err
	}
	out := newOutput(p, f.json, f.noProgress, f.verbose)
	f.begin(p, out, &f.mapFlags, "apply", ref, p.Dir, nixArgs, began)
	defer out.close()

	m, err := f.ready(ctx, p, out, flake.Request{Ref: ref, Args: nixArgs})
	var nothing nothingToRetry
	if errors.As(err, &nothing) {
		return nothing.tell(out, f.json, began)
	}
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	buildErrors, err := f.build(ctx, p, out, m.dir, f.results.here(m.nodes), m.options)
	if err != nil {
		return err
	}
	if err := f.results.kept(ctx, p, m.nodes, buildErrors); err != nil {
		return err
	}

	fleet := f.copying(p, out, m)
	if f.results.there {
		fleet.BuildThere = &closure.Build{Limit: f.buildTimeout, Logs: f.logs}
	}
	results := fleet.Run(ctx, m.work.Nodes, buildErrors)
	return finish(ctx, p, out, results, began)
}

// copying is a fleet that brings closures to its hosts.
func (f *applyFlags) copying(p Process, out *output, m ready) *deploy.Fleet {
	fleet := f.fleet(m.identities, out)
	fleet.Copier = f.copy.engine(p)
	fleet.Copier.Runner, fleet.Copier.Options, fleet.Copier.NoCheck = p.local(), m.options, f.noCheck
	return fleet
}

// build builds what isn't there. The links in the run's directory keep the
// systems from being collected until the run ends.
func (f *buildFlags) build(ctx context.Context, p Process, out *output, dir *ssh.RunDir, nodes []flake.Node, options [][2]string) (map[string]error, error) {
	began := time.Now()
	roots := filepath.Join(dir.Path, "roots")
	if err := os.Mkdir(roots, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for gc roots: %w", err)
	}
	progress := out.lines(report.Build)
	failed, err := flake.Builder{
		Runner: p.local(), Roots: roots, Limit: f.buildTimeout, Options: options, Logs: f.logs, Stderr: progress,
	}.Build(ctx, nodes)
	progress.Flush()
	if err != nil {
		return nil, err
	}
	out.emit(report.Record{Phase: &report.Phase{
		Time: time.Now(), Name: report.Build, OK: true, Seconds: time.Since(began).Seconds(),
	}})
	return failed, nil
}
