package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/nearest"
	"github.com/deploy-ssh/deploy-ssh/internal/peers"
)

// usageError is a command line that makes no sense.
type usageError struct{ cause error }

func (e usageError) Error() string { return e.cause.Error() }
func (e usageError) Unwrap() error { return e.cause }

// hints are one or two things to try after an error of a command.
func hints(cmd *cobra.Command, err error) []string {
	var usage usageError
	var unusable *flake.MapError
	switch {
	case errors.As(err, &usage):
		return []string{helpOf(cmd, err) + " shows how it is used"}
	case errors.As(err, &unusable) && strings.Contains(err.Error(), "does not provide attribute"):
		return []string{"what is wanted is the flake's node map, such as .#nodes; --on NAME selects a node of it"}
	case errors.Is(err, exec.ErrNotFound):
		return []string{"nix and ssh must be on the PATH of the deployer"}
	}
	return nil
}

// helpOf is the help to read after a slip. The flags of a command line without a verb
// are those of apply.
func helpOf(cmd *cobra.Command, slip error) string {
	path := cmd.CommandPath()
	if !cmd.HasParent() && (errors.As(slip, new(*pflag.NotExistError)) || errors.As(slip, new(*pflag.InvalidValueError))) {
		path += " apply"
	}
	return path + " --help"
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
