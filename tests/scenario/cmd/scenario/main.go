// Command scenario plays the end-to-end scenarios where there is no rig, such as
// on the deployer of a NixOS VM test. It runs on the deployer itself and reaches
// the targets over plain ssh.
//
// Standard output has one line per scenario; what went wrong is on standard error.
// It exits 0 when all went well, 1 when a scenario did not, 2 when it was called wrongly.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/sshworld"
	"github.com/spf13/pflag"
)

const usage = `usage: scenario run NAME... --world FILE.json    play scenarios, one after the other
       scenario list                            print their names
`

// play is a scenario by its name.
type play struct {
	name string
	run  func(context.Context, scenario.World) error
}

// scenarios are all there are, in the order of the story that they tell.
var scenarios = []play{
	{"BadInput", scenario.BadInput},
	{"TwoTargets", scenario.TwoTargets},
	{"Unchanged", scenario.Unchanged},
	{"Pins", scenario.Pins},
	{"HostKeys", scenario.HostKeys},
	{"OneDown", scenario.OneDown},
	{"BrokenSystems", scenario.BrokenSystems},
	{"Recovery", scenario.Recovery},
	{"Verdicts", scenario.Verdicts},
	{"Elevation", scenario.Elevation},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("scenario", pflag.ContinueOnError)
	flags.Usage = func() {}
	file := flags.String("world", "", "")
	wrong := func(err error) int {
		fmt.Fprintf(stderr, "scenario: %v\n%s", err, usage)
		return 2
	}
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return 0
	} else if err != nil {
		return wrong(err)
	}
	switch {
	case flags.NArg() == 1 && flags.Arg(0) == "list":
		for _, s := range scenarios {
			fmt.Fprintln(stdout, s.name)
		}
		return 0
	case flags.NArg() < 2 || flags.Arg(0) != "run" || *file == "":
		return wrong(errors.New("nothing to do"))
	}
	chosen, err := choose(flags.Args()[1:])
	if err != nil {
		return wrong(err)
	}
	world, err := sshworld.Read(*file)
	if err != nil {
		return wrong(err)
	}
	w, hangUp := world.Open()
	defer hangUp()
	for _, s := range chosen {
		began := time.Now()
		if err := s.run(ctx, w); err != nil {
			fmt.Fprintf(stderr, "scenario: %s: %v\n", s.name, err)
			return 1
		}
		fmt.Fprintf(stdout, "%s: ok, %.1f s\n", s.name, time.Since(began).Seconds())
	}
	return 0
}

// choose finds the scenarios of the names.
func choose(names []string) ([]play, error) {
	var chosen []play
next:
	for _, name := range names {
		for _, s := range scenarios {
			if s.name == name {
				chosen = append(chosen, s)
				continue next
			}
		}
		return nil, fmt.Errorf("there is no scenario %q", name)
	}
	return chosen, nil
}
