// Package child runs programs on the deployer: Nix and OpenSSH.
//
// Every child is non-interactive by construction:
// it leads a session of its own and so has no controlling terminal,
// its standard input is /dev/null unless the caller gives one,
// and git and ssh are told to never ask (see [Local]).
// What needs a person therefore fails at once instead of waiting for ever.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Grace is how long a cancelled child may take to end after SIGTERM
// before it and its process group are killed.
const Grace = 5 * time.Second

const (
	maxStdout = 256 << 20
	maxStderr = 1 << 20
)

// Command describes one run of a program.
// Only Name is required.
type Command struct {
	// Name is a path, or a name that is looked up in the PATH of the deployer.
	Name string
	// Args are the arguments after the program's name. No shell reads them.
	Args []string
	// Env is added to the environment of the runner; a later entry wins.
	Env []string
	// Dir is the working directory; empty means the runner's.
	Dir string
	// Stdin is what the child reads; nil means /dev/null.
	Stdin io.Reader
	// Stdout receives standard output as it comes. Nil means that it is
	// returned in [Result] instead, at most 256 MiB of it.
	Stdout io.Writer
	// Stderr receives a copy of standard error as it comes; nil means none.
	// The end of it is in [Result] either way.
	Stderr io.Writer
	// Subject is how errors name the command, such as "nix eval".
	// Empty means Name.
	Subject string
}

// Result is what a finished child left behind.
type Result struct {
	// Stdout is empty when [Command.Stdout] was given.
	Stdout []byte
	// Stderr is the last mebibyte of standard error.
	Stderr []byte
}

// Runner runs one command to its end.
// A child that ends with anything but exit code 0 is an [*Error].
type Runner interface {
	Run(ctx context.Context, c Command) (Result, error)
}

// Error is a child that could not be started or that did not end well.
type Error struct {
	// Subject names the command.
	Subject string
	// ExitCode is the child's exit code; -1 when it was killed or never ran.
	ExitCode int
	// Stderr is the end of what the child said, with surrounding blanks removed.
	Stderr string
	// Cause is why there is no ordinary exit code, such as a start that
	// failed or a deadline; nil when the child simply failed.
	Cause error
}

// Error is the child's own words where it left any.
func (e *Error) Error() string {
	switch {
	case e.Cause != nil && e.Stderr != "":
		return fmt.Sprintf("%s: %v\n%s", e.Subject, e.Cause, e.Stderr)
	case e.Cause != nil:
		return fmt.Sprintf("%s: %v", e.Subject, e.Cause)
	case e.Stderr != "":
		return fmt.Sprintf("%s: %s", e.Subject, e.Stderr)
	}
	return fmt.Sprintf("%s: exit status %d", e.Subject, e.ExitCode)
}

// Unwrap gives the cause, so that a caller can tell a cancelled child
// ([context.Canceled]) or a missing program ([exec.ErrNotFound]) from a failed one.
func (e *Error) Unwrap() error { return e.Cause }

// Local runs children on this machine.
type Local struct {
	// Env is the base environment, as from [os.Environ].
	Env []string
	// Dir is the working directory of children that name none.
	Dir string
	// Log, if not nil, is told of each command before it starts.
	Log func(Command)
}

// never are the variables that keep ssh and git from asking anybody anything.
// An inherited askpass program would open a window on somebody's screen.
var never = []string{
	"GIT_TERMINAL_PROMPT=0",
	"GIT_ASKPASS=",
	"SSH_ASKPASS=",
	"SSH_ASKPASS_REQUIRE=never",
}

// Start begins a command and returns without waiting for it.
// The caller must call Wait on the returned command once;
// when ctx ends first, the child's process group gets SIGTERM and,
// after [Grace], SIGKILL.
func (l Local) Start(ctx context.Context, c Command) (*exec.Cmd, error) {
	if l.Log != nil {
		l.Log(c)
	}
	program, err := l.Find(c.Name)
	if err != nil {
		return nil, &Error{Subject: c.subject(), ExitCode: -1, Cause: err}
	}
	cmd := exec.CommandContext(ctx, program, c.Args...)
	cmd.Env = append(append(append([]string{}, l.Env...), never...), c.Env...)
	cmd.Dir = c.Dir
	if cmd.Dir == "" {
		cmd.Dir = l.Dir
	}
	cmd.Stdin = c.Stdin
	cmd.Stdout = c.Stdout
	cmd.Stderr = c.Stderr
	cmd.SysProcAttr = sysProcAttr()
	cmd.Cancel = func() error {
		// The whole group: a build tool's own children must hear it too.
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	}
	// WaitDelay also bounds the wait for pipes that a grandchild,
	// such as a ProxyCommand, has inherited and keeps open.
	cmd.WaitDelay = Grace
	if err := cmd.Start(); err != nil {
		return nil, &Error{Subject: c.subject(), ExitCode: -1, Cause: err}
	}
	return cmd, nil
}

// Find looks a program up in the PATH of the runner's own environment, which need
// not be that of this process. A name with a slash is a path.
func (l Local) Find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, entry := range l.Env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		// As a shell would, but for the empty entry: nothing is run out of a folder
		// that only happens to be the present one.
		if !filepath.IsAbs(dir) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// Run implements [Runner].
func (l Local) Run(ctx context.Context, c Command) (Result, error) {
	stdout := &head{limit: maxStdout}
	if c.Stdout == nil {
		c.Stdout = stdout
	}
	stderr := &Tail{Limit: maxStderr}
	if c.Stderr == nil {
		c.Stderr = stderr
	} else {
		c.Stderr = io.MultiWriter(stderr, c.Stderr)
	}
	cmd, err := l.Start(ctx, c)
	if err != nil {
		return Result{}, err
	}
	err = cmd.Wait()
	if err != nil {
		// Whatever of the group outlived its leader goes with it.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	result := Result{Stdout: stdout.buf, Stderr: stderr.Bytes()}
	if err == nil && stdout.over {
		err = fmt.Errorf("more than %d MiB on standard output", maxStdout>>20)
		return result, &Error{Subject: c.subject(), Stderr: stderr.Text(), Cause: err}
	}
	if err == nil {
		return result, nil
	}
	failed := &Error{Subject: c.subject(), ExitCode: -1, Stderr: stderr.Text(), Cause: err}
	var exit *exec.ExitError
	switch {
	case context.Cause(ctx) != nil:
		failed.Cause = context.Cause(ctx)
	case errors.As(err, &exit) && exit.Exited():
		failed.ExitCode = exit.ExitCode()
		failed.Cause = nil
	}
	return result, failed
}

func (c Command) subject() string {
	if c.Subject != "" {
		return c.Subject
	}
	return c.Name
}

// head keeps the first limit bytes and remembers that there were more.
type head struct {
	buf   []byte
	limit int
	over  bool
}

func (h *head) Write(p []byte) (int, error) {
	room := h.limit - len(h.buf)
	if len(p) > room {
		h.over = true
		h.buf = append(h.buf, p[:room]...)
		return len(p), nil
	}
	h.buf = append(h.buf, p...)
	return len(p), nil
}

// Tail is a writer that keeps the last Limit bytes.
// It is not safe for concurrent use.
type Tail struct {
	Limit int
	buf   []byte
}

func (t *Tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	// Trimming at twice the limit keeps the copying linear.
	if len(t.buf) > 2*t.Limit {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.Limit:]...)
	}
	return len(p), nil
}

// Bytes returns what is kept.
func (t *Tail) Bytes() []byte {
	if len(t.buf) > t.Limit {
		return t.buf[len(t.buf)-t.Limit:]
	}
	return t.buf
}

// Text returns what is kept as trimmed text.
func (t *Tail) Text() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(t.Bytes()), "�"))
}
