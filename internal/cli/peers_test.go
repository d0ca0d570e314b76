package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/peers"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

func TestFlagsOfOthers(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{".#nodes --target-host root@web", "unknown flag: --target-host, as in nixos-rebuild; write host; in the node's entry"},
		{".#nodes --use-remote-sudo", `write elevate = "sudo"; in the node's entry`},
		{".#nodes --build-host b", "; builds run where Nix runs them"},
		{".#nodes --no-substitutes", "write --no-substitute"},
		{".#nodes --magic-rollback false", "write --confirm 2m"},
		{"status .#nodes --magic-rollback", "write --confirm 2m"},
		{"switch", `"switch" is a verb of nixos-rebuild, colmena, wire and morph; write deploy-ssh apply .#nodes`},
		{"apply boot .#nodes", "--goal boot"},
	} {
		code, stdout, stderr := run(t, strings.Fields(tt.args)...)
		if code != verdict.ExitUsage || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("deploy-ssh %s: exit code %d, want %d and %s:\n%s", tt.args, code, verdict.ExitUsage, tt.want, stderr)
		}
	}
}

// What the table of other tools tells people to write is there.
func TestOursExists(t *testing.T) {
	root := newRoot(Process{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	flags := map[string]bool{}
	var verbs []string
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		verbs = append(verbs, cmd.Name())
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags["--"+f.Name] = true })
	}
	keys := []string{}
	for _, k := range settings.Keys {
		keys = append(keys, k.Name)
	}
	for _, r := range peers.Table() {
		words := strings.Fields(r.Ours)
		if len(words) > 1 && words[0] == "deploy-ssh" && words[2] != "--" && !slices.Contains(verbs, words[1]) {
			t.Errorf("%s %s: %s: no such verb", r.Kind, r.Theirs, r.Ours)
		}
		for i, word := range words {
			if word == "--" || strings.HasPrefix(word, "--file") && i > 0 {
				continue
			}
			if name, _, _ := strings.Cut(word, "="); strings.HasPrefix(word, "--") && !flags[name] {
				t.Errorf("%s %s: %s: no such flag", r.Kind, r.Theirs, r.Ours)
			}
			if strings.HasPrefix(word, "DEPLOY_SSH_") && !slices.Contains(keys, word) {
				t.Errorf("%s %s: %s: no such variable", r.Kind, r.Theirs, r.Ours)
			}
		}
		if r.Kind == peers.Verb && slices.Contains(verbs, r.Theirs) {
			t.Errorf("the verb %s is ours as well", r.Theirs)
		}
	}
}
