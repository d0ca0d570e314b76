package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

const (
	// helpWidth is how wide help is where it doesn't go to a terminal.
	helpWidth = 80
	// widestHelp is what people still read a line of.
	widestHelp = 100
)

// FlagGroup is what help, man pages and the reference show together.
type FlagGroup struct {
	Title string
	Flags *pflag.FlagSet
}

// flagGroups are the groups of the verbs that take a node map, with their flags as
// people come to need them: most used first.
var flagGroups = []struct {
	title string
	names []string
}{
	{"Selection", []string{"on", "exclude", "retry-failed", "combined"}},
	{"Command", []string{"root", "timeout"}},
	{"Evaluation and build", []string{
		"plan", "store-path", "no-eval", "no-build", "build-on-target", "keep-result", "print-build-logs",
		"option", "nix-arg", "impure", "show-trace", "no-eval-cache",
	}},
	{"Copy", []string{
		"no-substitute", "substitute-on-destination", "compress",
		"via-cache", "via-cache-fetch", "via-cache-key", "via-cache-push",
	}},
	{"Switch", []string{"goal", "to", "dry-activate", "confirm", "reboot", "accept-degraded", "no-check"}},
	{"Rollout", []string{"parallel", "canary", "batch", "pause", "max-failures", "strategy"}},
	{"Connection", []string{"require-pins", "ssh-config"}},
	{"Output", []string{"json", "out", "verbose", "no-progress", "report", "no-report"}},
	{"Limits", []string{
		"eval-timeout", "build-timeout", "connect-timeout", "login-timeout", "keepalive-timeout", "command-timeout",
		"copy-timeout", "probe-age", "lock-attempts", "lock-interval", "switch-timeout", "reconnect-timeout",
		"settle", "boot-timeout", "reboot-timeout",
	}},
}

// FlagGroups parts the flags of a command into what belongs together. Those of a
// command that has few are one group.
func FlagGroups(flags *pflag.FlagSet) []FlagGroup {
	if flags.Lookup("connect-timeout") == nil {
		return []FlagGroup{{"Flags", flags}}
	}
	var groups []FlagGroup
	grouped := map[string]bool{}
	for _, g := range flagGroups {
		set := unsorted()
		for _, name := range g.names {
			if f := flags.Lookup(name); f != nil {
				set.AddFlag(f)
				grouped[name] = true
			}
		}
		if set.HasFlags() {
			groups = append(groups, FlagGroup{g.title, set})
		}
	}
	rest := unsorted()
	flags.VisitAll(func(f *pflag.Flag) {
		if !grouped[f.Name] {
			rest.AddFlag(f)
		}
	})
	return append(groups, FlagGroup{"Other", rest})
}

func unsorted() *pflag.FlagSet {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.SortFlags = false
	return set
}

// usageTemplate is cobra's, with the flags in groups. The root has those of apply, which
// are told there: its own help is the way to the verbs.
func usageTemplate(template string, width int) string {
	cobra.AddTemplateFunc("deploySSHFlags", func(cmd *cobra.Command) string { return flagUsages(cmd, width) })
	return strings.Replace(template, "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{deploySSHFlags . | trimTrailingWhitespaces}}", 1)
}

func flagUsages(cmd *cobra.Command, width int) string {
	if !cmd.HasParent() {
		own := unsorted()
		for _, name := range []string{"help", "version"} {
			if f := cmd.Flags().Lookup(name); f != nil {
				own.AddFlag(f)
			}
		}
		return "Flags:\n" + own.FlagUsagesWrapped(width) +
			"\nWithout a command, apply is meant: \"" + cmd.Name() + " apply --help\" has its flags."
	}
	var b strings.Builder
	for _, g := range FlagGroups(cmd.LocalFlags()) {
		fmt.Fprintf(&b, "%s:\n%s\n", g.Title, g.Flags.FlagUsagesWrapped(width))
	}
	return b.String()
}

// widthOfHelp is how wide help is made for w.
func widthOfHelp(w io.Writer) int {
	if width := widthOf(w); width > 0 {
		return min(width, widestHelp)
	}
	return helpWidth
}

// help prints the help of a command. Those that contact hosts tell what they
// read and how they end.
func help(cmd *cobra.Command, _ []string) {
	width := widthOfHelp(cmd.OutOrStdout())
	text := paragraphs(or(cmd.Long, cmd.Short), width) + "\n" + cmd.UsageString()
	if ContactsHosts(cmd) {
		text += helpTail(width)
	}
	fmt.Fprint(cmd.OutOrStdout(), text)
}

// ContactsHosts tells whether a command works on hosts, and so ends with what came of them.
func ContactsHosts(cmd *cobra.Command) bool {
	return slices.Contains([]string{cmd.Root().Name(), "apply", "plan", "rollback", "status", "exec"}, cmd.Name())
}

// helpTail is the part of the help that comes from tables.
func helpTail(width int) string {
	var b strings.Builder
	b.WriteString("\nEnvironment:\n")
	for _, key := range settings.Keys {
		b.WriteString(hanging(fmt.Sprintf("  %-18s ", key.Name), key.Meaning, width))
	}
	b.WriteString("\nExit codes:\n")
	for _, exit := range verdict.Exits() {
		b.WriteString(hanging(fmt.Sprintf("  %-3d ", exit.Code), exit.Meaning, width))
	}
	return b.String()
}

// paragraphs are texts parted by empty lines, broken anew; one that is indented is
// shown as it is.
func paragraphs(text string, width int) string {
	blocks := strings.Split(strings.Trim(text, "\n"), "\n\n")
	for i, block := range blocks {
		if !strings.HasPrefix(block, "  ") {
			block = hanging("", block, width)
		}
		blocks[i] = strings.TrimRight(block, "\n") + "\n"
	}
	return strings.Join(blocks, "\n")
}

// hanging is a text behind its term, broken at blanks, later lines under the first.
func hanging(term, text string, width int) string {
	indent := utf8.RuneCountInString(term)
	line, used := term, indent
	var b strings.Builder
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+n > width:
			b.WriteString(line + "\n")
			line, used = strings.Repeat(" ", indent), indent
		default:
			line, used = line+" ", used+1
		}
		line, used = line+word, used+n
	}
	return b.String() + line + "\n"
}
