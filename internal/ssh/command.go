package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"
)

// Command is a program that is run on the host for its own sake.
type Command struct {
	// Doing names it in errors.
	Doing string
	// Args are the program and its arguments. They reach it byte for byte; the
	// program's name must be neither empty nor begin with `-`, and none has a NUL.
	Args []string
	// Root runs it as root by the node's elevation, where it has one; without, it is
	// the login user's.
	Root bool
	// Stdout and Stderr receive what it prints, as it comes. They are called from
	// two goroutines.
	Stdout, Stderr io.Writer
}

// linger is how long the session may take to end after the command has. It lasts as
// long as what the command left behind, if that holds the output open.
const linger = time.Second

// Exec runs a command and returns its exit status: 128 and more for one that a signal
// ended, 126 or 127 for one that could not be started. Its standard input is empty.
// The error is an [*Error] where the status was not seen.
//
// When ctx ends or the connection is lost, the host tells the command to end.
func (c *Conn) Exec(ctx context.Context, cmd Command) (status int, err error) {
	elevation := Elevation("")
	if cmd.Root {
		elevation = c.elevation
	}
	for {
		marker := newMarker()
		out, errs := newFrame(marker, cmd.Stdout), newFrame(marker, cmd.Stderr)
		told, err := c.execute(ctx, elevation.command("/bin/sh"), wrapCommand(marker, cmd.Args), out, errs)
		if errors.Is(err, errRefused) && c.dropShell() {
			continue
		}
		err = c.judge(ctx, cmd.Doing, elevation, out, errs.before(), told, err)
		var exit *ExitError
		if errors.As(err, &exit) {
			return exit.Status, nil
		}
		return 0, err
	}
}

// execute runs a framed text in a session of its own. Standard input stays open while
// the command may run: its end tells the host that nobody waits any more.
func (c *Conn) execute(ctx context.Context, line, text string, out, errs *frame) (status int, err error) {
	in, input, err := os.Pipe()
	if err != nil {
		return notTold, fmt.Errorf("making a pipe: %w", err)
	}
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	var open atomic.Int32
	open.Store(2)
	ended := func() {
		if open.Add(-1) == 0 {
			_ = input.Close()
			time.AfterFunc(linger, cancel)
		}
	}
	out.onEnd, errs.onEnd = ended, ended
	var writer conc.WaitGroup
	writer.Go(func() { _, _ = io.WriteString(input, text) }) // the answer tells of one that failed
	status, err = c.ride(life, session{line: line, stdin: in, stdout: out, stderr: errs})
	_ = input.Close()
	writer.Wait()
	return status, err
}

// commandPath is as the login has it; what it lacks comes behind.
const commandPath = `PATH=${PATH:+$PATH:}/run/wrappers/bin:/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/usr/bin:/bin
export PATH
`

// wrapCommand makes of a command what is sent to sh's standard input, framed on both
// streams. The watcher beside the command reads on there: when the line ends before
// the command does, all that came from it is told to end. The command itself stays
// in the foreground, since a shell's background has SIGINT ignored. What the shell
// itself says of a command that a signal ended is nobody's output.
func wrapCommand(marker string, args []string) string {
	return "{\n" + commandPath +
		"exec 3<&0 </dev/null\n" +
		"trap : TERM\n" +
		"( trap : TERM; read -r line <&3; kill -TERM 0; sleep 5; kill -KILL 0 ) >/dev/null 2>&1 &\n" +
		"watcher=$!\n" +
		"exec 3<&-\n" +
		"printf '\\n%s begin\\n' " + marker + "\n" +
		"printf '\\n%s begin\\n' " + marker + " >&2\n" +
		"exec 4>&2 2>/dev/null\n" +
		"( exec " + quote(args) + " ) 2>&4 4>&-\n" +
		"status=$?\n" +
		"kill -KILL \"$watcher\"\n" +
		"wait \"$watcher\"\n" +
		"printf '%s end %s\\n' " + marker + " \"$status\"\n" +
		"printf '%s end %s\\n' " + marker + " \"$status\" >&4\n" +
		"exit 0\n}\n"
}

// quote makes words of a POSIX shell that mean just these arguments.
func quote(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
