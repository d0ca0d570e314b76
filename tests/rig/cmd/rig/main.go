// Rig brings real hosts up on this machine for people to look at:
// see the package tests/rig.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	// What ran in a host has had its say.
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "rig:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "rig",
		Short:         "Real hosts on one machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(deps(), up(), down(), shell(), list(), demo())
	return root
}

func deps() *cobra.Command {
	var suite string
	c := &cobra.Command{
		Use:   "deps",
		Short: "Install what is missing on this machine and build the hosts' root file system",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log := c.ErrOrStderr()
			if err := rig.Install(c.Context(), log); err != nil {
				return err
			}
			if err := rig.Needs(); err != nil {
				return err
			}
			path, err := rig.Root(c.Context(), suite, log)
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), "root file system of the hosts:", path)
			return nil
		},
	}
	c.Flags().StringVar(&suite, "suite", "trixie", "Debian release of the hosts")
	return c
}

func up() *cobra.Command {
	var config rig.Config
	var targets int
	c := &cobra.Command{
		Use:   "up",
		Short: "Make a rig that runs until it is taken down",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for i := range targets {
				config.Targets = append(config.Targets, rig.Target{Name: fmt.Sprintf("target%d", i+1)})
			}
			config.Log = c.ErrOrStderr()
			r, err := rig.Up(c.Context(), config)
			if err != nil {
				return err
			}
			if err := r.Detach(c.Context()); err != nil {
				return errors.Join(err, r.Down(context.WithoutCancel(c.Context())))
			}
			describe(c.OutOrStdout(), r)
			return nil
		},
	}
	c.Flags().StringVar(&config.Name, "name", "rig", "name of the rig")
	c.Flags().StringVar(&config.Suite, "suite", "trixie", "Debian release of the hosts")
	c.Flags().IntVar(&targets, "targets", 2, "number of targets")
	return c
}

// me is how people call this command.
const me = "go run ./tests/rig/cmd/rig"

// describe says what is there and how to look inside.
func describe(w io.Writer, r *rig.Rig) {
	fmt.Fprintf(w, "rig %s is up:\n", r.Name)
	for _, h := range r.Hosts() {
		fmt.Fprintf(w, "  %-12s %-12s %-10s ssh port %d\n", h.Name, h.Addr, h.Addr6, h.SSHPort)
	}
	fmt.Fprintf(w, "look inside:   %s shell deployer --rig %s\ntake it down:  %s down %s\n", me, r.Name, me, r.Name)
}

func down() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "down [NAME]",
		Short: "Take a rig down, and clear away what dead ones left",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if all != (len(args) == 0) {
				return errors.New("want either a rig's name or --all")
			}
			log := c.ErrOrStderr()
			if err := rig.Sweep(c.Context(), log); err != nil {
				return err
			}
			rigs, err := rig.List()
			if err != nil {
				return err
			}
			found := false
			for _, status := range rigs {
				if !all && status.Name != args[0] {
					continue
				}
				found = true
				if status.Owned {
					// Typically a test that is running.
					fmt.Fprintf(log, "rig %s belongs to a running process and ends with it\n", status.Name)
					continue
				}
				r, err := rig.Open(status.Name, log)
				if err != nil {
					return err
				}
				if err := r.Down(c.Context()); err != nil {
					return err
				}
			}
			if !all && !found {
				return fmt.Errorf("there is no rig %s (any more)", args[0])
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all rigs that no running process owns")
	return c
}

func shell() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:     "shell HOST [COMMAND...]",
		Short:   "Open a shell in a host, or run a command there",
		Example: "  " + me + " shell web1 --rig demo\n  " + me + " shell web1 systemctl --failed",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			var command []string
			if len(args) > 0 {
				// Flags may stand on either side of the host; behind them it is the command's.
				if err := c.Flags().Parse(args[1:]); err != nil {
					return err
				}
				command = c.Flags().Args()
			}
			if help, _ := c.Flags().GetBool("help"); help {
				return c.Help()
			}
			r, err := open(name, c.ErrOrStderr())
			if err != nil {
				return err
			}
			var names []string
			for _, h := range r.Hosts() {
				if names = append(names, h.Name); len(args) == 0 || h.Name != args[0] {
					continue
				}
				cmd, err := h.Shell(command...)
				if err != nil {
					return err
				}
				return cmd.Run()
			}
			has := fmt.Sprintf("rig %s has %s", r.Name, strings.Join(names, ", "))
			if len(args) == 0 {
				return errors.New("want a host: " + has)
			}
			return fmt.Errorf("no host %s: %s", args[0], has)
		},
	}
	c.Flags().StringVar(&name, "rig", "", "name of the rig (default: the only one)")
	c.Flags().SetInterspersed(false)
	return c
}

func open(name string, log io.Writer) (*rig.Rig, error) {
	if name != "" {
		return rig.Open(name, log)
	}
	rigs, err := rig.List()
	if err != nil {
		return nil, err
	}
	switch len(rigs) {
	case 0:
		return nil, errors.New("there is no rig: make one with rig up")
	case 1:
		return rig.Open(rigs[0].Name, log)
	}
	return nil, fmt.Errorf("there are %d rigs: name one with --rig (rig list shows them)", len(rigs))
}

func list() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the rigs on this machine and their hosts",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rigs, err := rig.List()
			if err != nil {
				return err
			}
			for _, r := range rigs {
				kind := "detached"
				if r.Owned {
					kind = "owned by a running process"
				}
				fmt.Fprintf(c.OutOrStdout(), "%s (%s, %s): %s\n", r.Name, r.Suite, kind, strings.Join(r.Hosts, " "))
			}
			return nil
		},
	}
}
