package cli

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		args   string
		tail   bool
		groups []string
	}{
		{"--help", true, []string{"Flags"}},
		{"apply --help", true, []string{"Selection", "Evaluation and build", "Copy", "Switch", "Rollout", "Connection", "Output", "Limits", "Other"}},
		{"rollback --help", true, []string{"Selection", "Evaluation and build", "Switch", "Rollout", "Connection", "Output", "Limits", "Other"}},
		{"exec --help", true, []string{"Selection", "Command", "Evaluation and build", "Rollout", "Connection", "Output", "Limits", "Other"}},
		{"check --help", false, []string{"Selection", "Evaluation and build", "Connection", "Output", "Limits", "Other"}},
		{"schema --help", false, []string{"Flags"}},
		{"version --help", false, []string{"Flags"}},
	} {
		code, text, _ := run(t, strings.Fields(tt.args)...)
		if code != 0 || strings.Contains(text, "Exit codes:") != tt.tail || strings.Contains(text, "Environment:") != tt.tail {
			t.Errorf("deploy-ssh %s: exit code %d, want exit codes and environment %v:\n%s", tt.args, code, tt.tail, text)
		}
		rest := text
		for _, title := range tt.groups {
			_, after, found := strings.Cut(rest, "\n"+title+":\n")
			if !found {
				t.Errorf("deploy-ssh %s: want the group %q in its place:\n%s", tt.args, title, text)
				break
			}
			rest = after
		}
		if has := strings.Contains(text, "-timeout duration"); has != slices.Contains(tt.groups, "Limits") {
			t.Errorf("deploy-ssh %s: limits without their group, or a group without limits:\n%s", tt.args, text)
		}
	}
}

// A flag that is new has a group, in which it is looked for; and help fits a terminal.
func TestHelpOfEveryVerb(t *testing.T) {
	for _, cmd := range Root().Commands() {
		cmd.InitDefaultHelpFlag()
		groups := FlagGroups(cmd.LocalFlags())
		seen := 0
		for _, g := range groups {
			g.Flags.VisitAll(func(f *pflag.Flag) {
				seen++
				if g.Title == "Other" && f.Name != "help" {
					t.Errorf("%s: --%s has no group; give it one in flagGroups", cmd.Name(), f.Name)
				}
			})
		}
		all := 0
		cmd.LocalFlags().VisitAll(func(*pflag.Flag) { all++ })
		if seen != all {
			t.Errorf("%s: the groups have %d flags, the command %d", cmd.Name(), seen, all)
		}
		_, text, _ := run(t, cmd.Name(), "--help")
		for line := range strings.Lines(text) {
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > helpWidth {
				t.Errorf("%s: longer than %d: %s", cmd.Name(), helpWidth, line)
			}
		}
	}
	_, text, _ := run(t, "--help")
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > helpWidth {
			t.Errorf("longer than %d: %s", helpWidth, line)
		}
	}
}
