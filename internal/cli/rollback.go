package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
)

// rollbackFlags are the flags of rollback. Nothing is evaluated, built or copied for it
// but the settings of the nodes.
type rollbackFlags struct {
	mapFlags
	switchFlags
	to int
}

func newRollback(p Process) *cobra.Command {
	f := &rollbackFlags{}
	cmd := &cobra.Command{
		Use:   "rollback FLAKE#NODES [flags] [-- NIX ARGS]",
		Short: "Bring hosts to an earlier generation of their own",
		Long: `Brings each host to an earlier generation of its own system profile: the newest one
whose system is not the running one, or the one that --to names. A host that runs a
system which its profile doesn't lead to, as after a failed switch, goes back to its
profile's. No system is evaluated, built or copied.`,
		Args: refAndNixArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), p, args[0], args[1:])
		},
	}
	f.mapFlags.add(cmd.Flags(), "print the records of the run as JSON lines instead of the table")
	f.switchFlags.add(cmd.Flags())
	cmd.Flags().Lookup("goal").Usage = "how far to go: dry-activate, test, boot or switch"
	cmd.Flags().IntVar(&f.to, "to", 0, "number of the `GENERATION` to go to (default: the one before)")
	return cmd
}

func (f *rollbackFlags) run(ctx context.Context, p Process, ref string, nixArgs []string) error {
	began := time.Now()
	if err := f.mapFlags.check(); err != nil {
		return err
	}
	if err := f.switchFlags.check(); err != nil {
		return err
	}
	switch {
	case f.to < 0:
		return usageError{fmt.Errorf("--to %d: generations count from 1", f.to)}
	case f.goal == deploy.GoalBuild, f.goal == deploy.GoalPush:
		return usageError{fmt.Errorf("--goal %s: an earlier generation is on the host already", f.goal)}
	}
	out := newOutput(p, f.json, f.noProgress, f.verbose)
	f.begin(p, out, &f.mapFlags, "rollback", ref, p.Dir, nixArgs, began)
	defer out.close()
	m, err := f.ready(ctx, p, out, flake.Request{Ref: ref, Args: nixArgs, SettingsOnly: true})
	var nothing nothingToRetry
	if errors.As(err, &nothing) {
		return nothing.tell(out, f.json, began)
	}
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	fleet := f.fleet(m.identities, out)
	fleet.Rollback = &deploy.Rollback{To: f.to}
	return finish(ctx, p, out, fleet.Run(ctx, m.work.Nodes, nil), began)
}
