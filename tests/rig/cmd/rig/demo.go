package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

const demoRig = "demo"

// demoFlake is the example that the demo deploys; its nodes are web1 and web2.
const demoFlake = "examples/two-hosts/flake.nix"

func demo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Deploy the example flake to two real hosts, and leave them running to look at",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return playDemo(c.Context(), c)
		},
	}
}

func playDemo(ctx context.Context, c *cobra.Command) error {
	out, log := c.OutOrStdout(), c.ErrOrStderr()
	flake, err := os.ReadFile(demoFlake)
	if err != nil {
		return fmt.Errorf("reading the example: %w (the demo runs from the project's folder)", err)
	}
	if err := takeDown(ctx, demoRig, c); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "deploy-ssh-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintln(log, "demo: building deploy-ssh")
	program, err := rigworld.BuildProgram(ctx, dir)
	if err != nil {
		return err
	}
	r, err := rig.Up(ctx, rig.Config{Name: demoRig, Log: log, Targets: []rig.Target{
		rigworld.Target("web1", 2201), rigworld.Target("web2", 2202),
	}})
	if err != nil {
		return err
	}
	if err := deployDemo(ctx, c, r, program, string(flake)); err != nil {
		return errors.Join(err, r.Down(context.WithoutCancel(ctx)))
	}
	if err := r.Detach(ctx); err != nil {
		return errors.Join(err, r.Down(context.WithoutCancel(ctx)))
	}
	fmt.Fprintf(out, `
Both hosts go on running. These commands run from the project's folder. Look at a host:
  %[1]s shell web1 --rig %[2]s
Change something and deploy it; %[3]s is a copy of %[4]s, and nano is there:
  %[1]s shell deployer --rig %[2]s
      cd %[3]s
      sed -i s/Hello/Bye/ flake.nix && deploy-ssh .#nodes
      %[5]s
      deploy-ssh status .#nodes
      exit
Take them down:
  %[1]s down %[2]s
`, me, demoRig, rigworld.Flake, demoFlake, curl("web1"))
	return nil
}

// takeDown removes a rig of that name that an earlier demo left running.
func takeDown(ctx context.Context, name string, c *cobra.Command) error {
	rigs, err := rig.List()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(rigs, func(s rig.Status) bool { return s.Name == name && !s.Owned }) {
		return nil
	}
	r, err := rig.Open(name, c.ErrOrStderr())
	if err != nil {
		return err
	}
	return r.Down(ctx)
}

func deployDemo(ctx context.Context, c *cobra.Command, r *rig.Rig, program, flake string) error {
	out, log := c.OutOrStdout(), c.ErrOrStderr()
	if err := rigworld.Prepare(ctx, r, program, flake); err != nil {
		return err
	}
	fmt.Fprintln(log, "demo: giving both hosts a first system")
	first, err := rigworld.BuildToplevel(ctx, r, "path:"+rigworld.Flake+"/toplevels#nodes.one")
	if err != nil {
		return err
	}
	for _, h := range r.Targets {
		if err := rigworld.Install(ctx, r, h, first); err != nil {
			return err
		}
	}
	for _, step := range []struct{ shown, script string }{
		{"deploy-ssh .#nodes", "deploy-ssh .#nodes"},
		{"deploy-ssh .#nodes    # once more: nothing to do", "deploy-ssh .#nodes"},
		{curl("web1"), curl("web1")},
		{curl("web2"), curl("web2")},
	} {
		fmt.Fprintf(out, "\ndeployer$ %s\n", step.shown)
		result, err := r.Deployer.Run(ctx, rig.Cmd{
			Args: []string{"/bin/bash", "-c", certificates + step.script}, Dir: rigworld.Flake, Stdout: out, Stderr: log,
		})
		if err != nil {
			return err
		}
		if result.Code != 0 {
			return fmt.Errorf("%s: exit status %d", step.shown, result.Code)
		}
	}
	return nil
}

// curl asks a host for its page, and trusts the certificate of its system alone.
func curl(host string) string {
	return "curl -sS --fail --cacert /run/rig-demo/" + host + "/etc/ssl-resource.pem https://" + host + "/"
}

// certificates links the toplevels, whose certificates curl is to trust.
const certificates = `mkdir -p /run/rig-demo && for h in web1 web2; do
  [ -e /run/rig-demo/$h ] || ln -sfn "$(nix eval --raw .#nodes --apply "m: (builtins.head (builtins.filter (n: n.name == \"$h\") (m.nodes or m))).toplevel.outPath")" /run/rig-demo/$h
done; `
