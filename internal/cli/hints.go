package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/nearest"
	"github.com/deploy-ssh/deploy-ssh/internal/peers"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// usageError is a command line that makes no sense.
type usageError struct{ cause error }

func (e usageError) Error() string { return e.cause.Error() }
func (e usageError) Unwrap() error { return e.cause }

// hints are one or two things to try.
func hints(err error) []string {
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return []string{"deploy-ssh --help shows how it is used"}
	case errors.Is(err, exec.ErrNotFound):
		return []string{"nix and ssh must be on the PATH of the deployer"}
	}
	return nil
}

// checkRef refuses the first word of a command line that names no attribute:
// Nix would take the flake's default package for the node map.
func checkRef(cmd *cobra.Command, ref string, nixArgs []string) error {
	// With these of Nix's arguments the word is an attribute of something else.
	for _, other := range []string{"-f", "--file", "--expr"} {
		if slices.Contains(nixArgs, other) {
			return nil
		}
	}
	if strings.Contains(ref, "#") {
		return nil
	}
	if row, theirs := peers.Find(peers.Verb, ref); theirs {
		return usageError{fmt.Errorf("%q is a verb of %s; %s", ref, row.Names(), row.Remedy())}
	}
	var verbs []string
	for _, verb := range cmd.Root().Commands() {
		verbs = append(verbs, verb.Name())
	}
	meant := nearest.Word(ref, verbs)
	switch {
	case meant != "" && meant != cmd.Name():
	case strings.ContainsAny(ref, "./:?~"):
		meant = ref + "#nodes"
	default:
		meant = ".#" + ref
	}
	return usageError{fmt.Errorf("%q is no flake reference with the node map's attribute; did you mean %q?", ref, meant)}
}

// flagError is an error about flags, with the nearest one where it is no flag at all.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return usageError{err}
	}
	name := unknown.GetSpecifiedName()
	if row, theirs := peers.Find(peers.Flag, name); theirs && !strings.HasPrefix(row.Ours, "--"+name) {
		return usageError{fmt.Errorf("%w, as in %s; %s", err, row.Names(), row.Remedy())}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return usageError{fmt.Errorf("%w%s", err, nearest.Hint("--"+name, names))}
}

// groupedUsage is cobra's usage text with the flags in two blocks: those that
// people choose by, then the limits, which hardly anybody changes.
func groupedUsage(template string) string {
	cobra.AddTemplateFunc("deploySSHFlags", groupedFlags)
	return strings.Replace(template, "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{deploySSHFlags .LocalFlags | trimTrailingWhitespaces}}", 1)
}

func groupedFlags(flags *pflag.FlagSet) string {
	common, limits := FlagGroups(flags)
	if !limits.HasFlags() {
		return common.FlagUsages()
	}
	return common.FlagUsages() + "\nLimits:\n" + limits.FlagUsages()
}

// FlagGroups parts the flags that people choose by from the limits.
func FlagGroups(flags *pflag.FlagSet) (common, limits *pflag.FlagSet) {
	common, limits = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		if strings.HasSuffix(f.Name, "-timeout") || slices.Contains([]string{"lock-attempts", "lock-interval", "settle", "probe-age"}, f.Name) {
			limits.AddFlag(f)
		} else {
			common.AddFlag(f)
		}
	})
	return common, limits
}

// help prints the help of a command. Those that contact hosts tell what they
// read and how they end.
func help(cmd *cobra.Command, _ []string) {
	text := strings.TrimSpace(or(cmd.Long, cmd.Short)) + "\n\n" + cmd.UsageString()
	if ContactsHosts(cmd) {
		text += helpTail()
	}
	fmt.Fprint(cmd.OutOrStdout(), text)
}

// ContactsHosts tells whether a command works on hosts, and so ends with what came of them.
func ContactsHosts(cmd *cobra.Command) bool {
	return slices.Contains([]string{cmd.Root().Name(), "apply", "plan", "rollback", "status", "exec"}, cmd.Name())
}

// helpTail is the part of the help that comes from tables.
func helpTail() string {
	var b strings.Builder
	b.WriteString("\nEnvironment:\n")
	for _, key := range settings.Keys {
		fmt.Fprintf(&b, "  %-18s %s\n", key.Name, key.Meaning)
	}
	b.WriteString("\nExit codes:\n")
	for _, exit := range verdict.Exits() {
		fmt.Fprintf(&b, "  %-3d %s\n", exit.Code, exit.Meaning)
	}
	return b.String()
}
