package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
)

const (
	// stdinLimit bounds the wait for names on standard input: who writes them may
	// ask other programs first.
	stdinLimit = 5 * time.Minute
	// stdinSize is more than any list of names that Nix could be told.
	stdinSize = 1 << 20
)

// selection makes of --on and --exclude what the evaluation takes.
func (f *mapFlags) selection(ctx context.Context, p Process, r *flake.Request) error {
	reader := ""
	for _, s := range []struct {
		flag  string
		texts []string
		into  *[]flake.Selector
	}{{"on", f.on, &r.Include}, {"exclude", f.exclude, &r.Exclude}} {
		for _, text := range s.texts {
			var items []string
			for _, item := range strings.Split(text, ",") {
				if strings.TrimSpace(item) != "-" {
					items = append(items, item)
					continue
				}
				if reader != "" {
					return usageError{fmt.Errorf("--%s %q: standard input can be read once, and --%s reads it", s.flag, text, reader)}
				}
				reader = s.flag
				names, err := namesFromStdin(ctx, p.Stdin)
				if err != nil {
					return usageError{fmt.Errorf("--%s %q: %w", s.flag, text, err)}
				}
				// To leave out what an empty list names is to leave out nothing.
				if len(names) == 0 && s.flag == "on" {
					return usageError{fmt.Errorf("--%s %q: standard input names no node", s.flag, text)}
				}
				items = append(items, names...)
			}
			if len(items) == 0 {
				continue
			}
			selectors, err := flake.ParseSelectors(strings.Join(items, ","))
			if err != nil {
				return usageError{fmt.Errorf("--%s %q: %w", s.flag, text, err)}
			}
			*s.into = append(*s.into, selectors...)
		}
	}
	return nil
}

// namesFromStdin reads names that are separated by blanks or ends of lines.
func namesFromStdin(ctx context.Context, stdin io.Reader) ([]string, error) {
	if stdin == nil {
		return nil, nil
	}
	if file, ok := stdin.(*os.File); ok {
		if isTerminal(file) {
			return nil, errors.New("standard input is a terminal; names are read from a pipe or a file")
		}
		ctx, cancel := context.WithTimeoutCause(ctx, stdinLimit, fmt.Errorf("no end of standard input within %v", stdinLimit))
		defer cancel()
		stdin = pollReader{ctx, file}
	}
	text, err := io.ReadAll(io.LimitReader(stdin, stdinSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading names from standard input: %w", err)
	}
	if len(text) > stdinSize {
		return nil, fmt.Errorf("standard input has more than %d KiB", stdinSize>>10)
	}
	return strings.Fields(string(text)), nil
}

// isTerminal tells whether reading from the file would wait for a person.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// pollReader reads a file that may never have anything to read, until ctx ends.
type pollReader struct {
	ctx  context.Context
	file *os.File
}

func (r pollReader) Read(b []byte) (int, error) {
	for {
		if r.ctx.Err() != nil {
			return 0, context.Cause(r.ctx)
		}
		fds := []unix.PollFd{{Fd: int32(r.file.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
		if n > 0 {
			return r.file.Read(b)
		}
	}
}
