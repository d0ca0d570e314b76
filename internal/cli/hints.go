package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

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
