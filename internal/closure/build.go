package closure

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

//go:embed build.sh
var buildScript string

// Build builds systems on the hosts that they are for. How it is done, with how many
// jobs, on which machines, from which substituters, is up to the host's own settings.
type Build struct {
	// Limit bounds one build; 0 means none.
	Limit time.Duration
	// Logs says that builders' output is passed on as it comes. Without it the last
	// lines of a failed builder's output are part of its error.
	Logs bool
}

// Builds is the open way to a host, as far as a build needs it.
type Builds interface {
	Run(context.Context, ssh.Script) error
	Reopen(context.Context) error
}

// Run builds a derivation that a host has, and keeps the result from its garbage
// collector. What Nix says goes to output. When the line is lost the build ends, and is
// begun again [attempts] times: what was built by then stays. The error is an
// [*ssh.Error] when the way to the host was lost for good, else in Nix's words.
func (b Build) Run(ctx context.Context, h Builds, derivation, system string, output io.Writer) error {
	if b.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.Limit, fmt.Errorf("building took longer than %v", b.Limit))
		defer cancel()
	}
	logs := "no"
	if b.Logs {
		logs = "yes"
	}
	text := fmt.Sprintf("derivation='%s' system='%s' logs=%s\n%s", derivation, system, logs, buildScript)
	for try := 1; ; try++ {
		said := child.Tail{Limit: keptWords}
		err := h.Run(ctx, ssh.Script{
			Doing: "building on the host", Text: text, Output: io.MultiWriter(&said, output), Timeout: -1, Attended: true,
		})
		var failed *ssh.ExitError
		var lost *ssh.Error
		switch {
		case errors.As(err, &failed):
			return errors.New(buildWords(said.Text(), failed.Words))
		case ctx.Err() != nil && err != nil:
			return fmt.Errorf("building on the host: %w", context.Cause(ctx))
		case !errors.As(err, &lost) || try == attempts:
			return err
		}
		if again := h.Reopen(ctx); again != nil {
			return fmt.Errorf("%w; connecting again: %w", err, again)
		}
	}
}

// buildWords is what Nix said of a failed build, from its first error on; all of it when
// there is none. Its last word, which repeats what it was asked for, is left out.
func buildWords(said, more string) string {
	text := strings.TrimSpace(said + "\n" + more)
	if _, after, found := strings.Cut("\n"+text, "\nerror:"); found {
		text = "error:" + after
	}
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "error: build of '") || len(kept) == 0 {
			kept = append(kept, line)
		}
	}
	if kept == nil {
		return "the host says neither why it built nothing nor that the system is there"
	}
	return strings.TrimSpace(strings.Join(kept, ""))
}
