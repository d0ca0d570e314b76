// Package stage is what all benchmarks stand on: a program that ends when it is told to, and
// a rig whose hosts run and boot a first system.
package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sourcegraph/conc/pool"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// Main is the main function of the benchmark of that name. An interrupt or SIGTERM ends
// run's context; an error is printed, and the exit code is 1.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Stage is a rig to measure on.
type Stage struct {
	// Suite is the Debian release of all hosts; empty means the rig's own.
	Suite string
	// Targets are the hosts that are deployed to.
	Targets []rig.Target
	// Flake is the text of the deployer's flake, see [rigworld.Prepare], and First the
	// attribute of the system that all targets are to run and boot.
	Flake, First string
	// Before, if not nil, is done to the rig before anything is put on its hosts.
	Before func(context.Context, *rig.Rig) error
}

// installs is how many hosts get their first system at once.
const installs = 4

// Use brings the rig up, with the program on its deployer, has do measure on it, and takes
// the rig down, however that ends.
func (s Stage) Use(ctx context.Context, do func(*rig.Rig) error) (err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := rigworld.BuildProgram(ctx, dir)
	if err != nil {
		return err
	}
	r, err := rig.Up(ctx, rig.Config{Suite: s.Suite, Targets: s.Targets, Log: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Down(context.WithoutCancel(ctx))) }()
	if s.Before != nil {
		if err := s.Before(ctx, r); err != nil {
			return err
		}
	}
	if err := rigworld.Prepare(ctx, r, program, s.Flake); err != nil {
		return err
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#"+s.First)
	if err != nil {
		return err
	}
	work := pool.New().WithErrors().WithMaxGoroutines(installs)
	for _, h := range r.Targets {
		work.Go(func() error { return rigworld.Install(ctx, r, h, first) })
	}
	if err := work.Wait(); err != nil {
		return err
	}
	return do(r)
}
