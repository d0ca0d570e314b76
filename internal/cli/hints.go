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
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return usageError{fmt.Errorf("%w%s", err, nearest.Hint("--"+unknown.GetSpecifiedName(), names))}
}

// groupedUsage is cobra's usage text with the flags in two blocks: those that
// people choose by, then the limits, which hardly anybody changes.
func groupedUsage(template string) string {
	cobra.AddTemplateFunc("deploySSHFlags", groupedFlags)
	return strings.Replace(template, "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{deploySSHFlags .LocalFlags | trimTrailingWhitespaces}}", 1)
}

func groupedFlags(flags *pflag.FlagSet) string {
	common, limits := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		if strings.HasSuffix(f.Name, "-timeout") || slices.Contains([]string{"lock-attempts", "lock-interval", "settle", "probe-age"}, f.Name) {
			limits.AddFlag(f)
		} else {
			common.AddFlag(f)
		}
	})
	if !limits.HasFlags() {
		return common.FlagUsages()
	}
	return common.FlagUsages() + "\nLimits:\n" + limits.FlagUsages()
}

// help prints the help of a command. Those that contact hosts tell what they
// read and how they end.
func help(cmd *cobra.Command, _ []string) {
	text := strings.TrimSpace(or(cmd.Long, cmd.Short)) + "\n\n" + cmd.UsageString()
	if slices.Contains([]string{cmd.Root().Name(), "apply", "rollback", "status"}, cmd.Name()) {
		text += helpTail()
	}
	fmt.Fprint(cmd.OutOrStdout(), text)
}

// helpTail is the part of the help that comes from tables.
func helpTail() string {
	var b strings.Builder
	b.WriteString("\nEnvironment:\n")
	for _, key := range settings.Keys {
		fmt.Fprintf(&b, "  %-18s %s\n", key.Name, key.Meaning)
	}
	fmt.Fprintf(&b, `
Exit codes:
  %-3d every node is as wanted
  %-3d a node failed
  %-3d usage, map or settings error; no host was contacted
  %-3d no node failed, but what came of one is unknown
  %-3d no node failed, but units did on one
  %-3d status alone: a host is not as wanted
  %-3d interrupted
`, verdict.ExitGood, verdict.ExitFailed, verdict.ExitUsage, verdict.ExitUnknown, verdict.ExitDegraded, verdict.ExitDrift, verdict.ExitInterrupted)
	return b.String()
}
