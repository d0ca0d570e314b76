package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// Root returns the program's commands for what is made of them: man pages, the
// reference, a check of the commands that documents show. They are not to be run.
func Root() *cobra.Command {
	return newRoot(Process{Stdout: io.Discard, Stderr: io.Discard})
}

// described is what help, man pages and the reference say of a verb beside its
// first line and its flags.
type described struct{ long, examples string }

var descriptions = map[string]described{
	"deploy-ssh": {examples: `  deploy-ssh .#nodes                        deploy all nodes, in list order
  deploy-ssh .#nodes --on web,@eu           only these
  deploy-ssh .#nodes --goal dry-activate    what a switch would do`},
	"apply": {
		long: `Evaluates the node map, builds each system, copies its closure to the host,
activates it there, and makes the boot entry once the host has been looked at. A
node that fails does not stop the ones after it.

A node that runs and boots its system already costs one connection and one command.
When the line drops, or the deployer dies, the switch goes on; running again takes
it up where it is.`,
		examples: `  deploy-ssh apply .#nodes
  deploy-ssh apply .#nodes --on 'web-*' --exclude web-3
  deploy-ssh apply .#nodes --confirm 2m
  deploy-ssh apply .#nodes --goal boot --reboot
  deploy-ssh apply .#nodes --json
  deploy-ssh apply --plan fleet.plan
  deploy-ssh apply .#nodes --option cores 4 -- --refresh`,
	},
	"check": {
		long: `Evaluates each node's system, lays the layers of settings over one another, and
has the options, key files and jump hosts checked by OpenSSH itself. All problems of
all nodes are told at once. Nothing is built and no host is contacted, so it is what
to run before a commit and in CI.`,
		examples: `  deploy-ssh check .#nodes
  deploy-ssh check .#nodes web --json`,
	},
	"explain": {
		long: `Shows where each setting of a node comes from (a built-in value, the map's
defaults, the node's entry, the environment), what ssh makes of it, which host key
it will accept and the ssh_config that every connection uses.`,
		examples: `  deploy-ssh explain .#nodes web
  deploy-ssh explain .#nodes --json`,
	},
	"hostkeys": {
		long: `Prints the keys that hosts show, ready to be pasted as ssh.hostKey. What a network
shows may be an attacker's: compare the fingerprints with those on the hosts.`,
		examples: `  deploy-ssh hostkeys .#nodes
  deploy-ssh hostkeys .#nodes web --json`,
	},
	"rollback": {examples: `  deploy-ssh rollback .#nodes --on web
  deploy-ssh rollback .#nodes --on web --to 41`},
	"status": {examples: `  deploy-ssh status .#nodes
  deploy-ssh status .#nodes --no-eval --json`},
	"schema": {
		long: `Prints the JSON Schema (2020-12) of the node map, of DEPLOY_SSH_NODES and of the
environment variables that are read, for editors and front-ends.`,
		examples: `  deploy-ssh schema`,
	},
	"completion": {
		long: `Shells complete verbs, flags, goals, flake attributes, and the names and tags of nodes.
Nodes are read from the node map, without their systems and without contacting a host.
Packages have the scripts installed already; by hand they are read by

  bash: source <(deploy-ssh completion bash)
  zsh:  source <(deploy-ssh completion zsh)
  fish: deploy-ssh completion fish | source`,
		examples: `  deploy-ssh completion bash`,
	},
	"version": {examples: `  deploy-ssh version`},
}

// describe gives the commands the texts that they don't have themselves.
func describe(root *cobra.Command) {
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		d := descriptions[cmd.Name()]
		cmd.Long, cmd.Example = or(cmd.Long, d.long), or(cmd.Example, d.examples)
	}
}

// Parse tells whether a command line makes sense: its verb, its flags and their
// values, the form of its arguments. Nothing is run. It is for command lines in
// documents, which say nothing of values that contradict one another.
func Parse(args []string) error {
	root := Root()
	cmd, rest, err := root.Find(joinOptions(args))
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return flagError(cmd, err)
	}
	if help, err := cmd.Flags().GetBool("help"); err == nil && help {
		return nil
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
