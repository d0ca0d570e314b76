package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// shell is a root's shell on the host that runs one script after the other. To begin a
// session takes three round trips (the channel, the command, and only then does sshd
// take input, since a session's window is empty until it has a command), a process of
// sshd's and perhaps a sudo; the second script in an open one takes one round trip.
//
// A shell that has lost a script, or was told to give one up, is never used again.
type shell struct {
	master   *master  // over which it was opened
	in       *os.File // what the host's sh reads
	out, err outlet
	end      context.CancelFunc
	ended    chan struct{} // closed when the session is over, with what follows then
	status   int
	failure  error
}

// nextScripts is what the host's sh does after its first script: a line with a number of
// bytes, then as many of a script, in turn. One that is cut short lacks its last line and
// is not run.
// Its own variables go first: what the login has exported is inherited by all that a
// script starts, and one that holds a script would be too big for that.
const nextScripts = `unset size script status
while IFS= read -r size; do
    script=$(head -c "$size")
    case $script in *'` + lastLine + `') eval "$script" ;; *) exit 1 ;; esac
done
exit 0
`

// leaveTimeout bounds the polite end of a shell that waits, a round trip.
const leaveTimeout = 2 * time.Second

const lastLine = "# whole"

// framed is a script between its marks, in a subshell without our input. Standard error
// has none at its begin: where it comes on standard output that would stand in the answer.
func framed(marker, script string) string {
	return "printf '\\n%s begin\\n' " + marker + "\n" +
		"(\n" + script + "\n) </dev/null\n" +
		"status=$?\n" +
		"printf '%s end %s\\n' " + marker + " $status\n" +
		"printf '%s end %s\\n' " + marker + " $status >&2\n"
}

// first is what a shell is sent to begin with. As in [wrap], the braces make sh read all
// of it before it runs any.
func first(marker, script string) string {
	return "{\n" + prelude + framed(marker, script) + nextScripts + "}\n"
}

// next is what it is sent from then on.
func next(marker, script string) string {
	text := framed(marker, script) + lastLine
	return fmt.Sprintf("%d\n%s", len(text), text)
}

// newShell begins a session; what is sent comes with the first script.
func (c *Conn) newShell() (*shell, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	// Its life is that of the connection; each script has a time limit of its own.
	life, end := context.WithCancel(context.Background())
	s := &shell{master: c.master.Load(), in: w, end: end, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.status, s.failure = c.ride(life, session{line: c.elevation.command("/bin/sh"), stdin: r, stdout: &s.out, stderr: &s.err})
	}()
	return s, nil
}

// run sends a text and waits until both frames have ended, or the session has. again is
// whether the shell takes another script.
func (s *shell) run(ctx context.Context, text string, out, errs *frame) (again bool) {
	answered, told := make(chan struct{}), make(chan struct{})
	out.onEnd, errs.onEnd = func() { close(answered) }, func() { close(told) }
	s.out.set(out)
	s.err.set(errs)
	var writing conc.WaitGroup
	writing.Go(func() { _, _ = io.WriteString(s.in, text) }) // the answer tells of one that failed
	again = s.wait(ctx, answered, told)
	writing.Wait()
	s.out.set(nil)
	s.err.set(nil)
	return again
}

// wait waits for the ends of both frames. One of them may never come, where the login
// sends a stream elsewhere: then the end of the session tells that all has come.
func (s *shell) wait(ctx context.Context, answered, told <-chan struct{}) (again bool) {
	var late <-chan time.Time
	again = true
	for waiting := 2; waiting > 0; {
		select {
		case <-answered:
			answered = nil
		case <-told:
			told = nil
		case <-late:
			if answered != nil {
				_ = s.in.Close() // whatever of the answer is on its way comes first
				again, late = false, nil
				continue
			}
			s.leave()
			return false
		case <-s.ended:
			return false
		case <-ctx.Done():
			s.close()
			return false
		}
		waiting--
		if again {
			late = time.After(linger)
		}
	}
	return again
}

// over reports whether the session has ended.
func (s *shell) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// leave has the host end the session, so that it counts there no more, and waits for that.
func (s *shell) leave() {
	_ = s.in.Close()
	select {
	case <-s.ended:
	case <-time.After(leaveTimeout):
	}
	s.close()
}

// close ends the session and waits for that.
func (s *shell) close() {
	s.end()
	<-s.ended
	_ = s.in.Close()
}

// outlet passes on what is written to whoever listens; nobody does between two scripts.
type outlet struct {
	mu sync.Mutex
	to io.Writer
}

func (o *outlet) set(to *frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = nil
	if to != nil {
		o.to = to
	}
}

func (o *outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to == nil {
		return len(p), nil
	}
	return o.to.Write(p)
}

// takeShell takes the shell that waits for a script; nil when there is none.
func (c *Conn) takeShell() *shell {
	c.idle.Lock()
	defer c.idle.Unlock()
	s := c.waiting
	c.waiting = nil
	if s != nil && (s.over() || s.master != c.master.Load()) {
		s.close()
		return nil
	}
	return s
}

// keepShell keeps a shell for the next script.
func (c *Conn) keepShell(s *shell) {
	c.idle.Lock()
	defer c.idle.Unlock()
	if c.waiting == nil && !s.over() {
		c.waiting = s
		return
	}
	s.close()
}

// dropShell ends the shell that waits for a script, which takes one of the few sessions
// that a host may open, and reports whether there was one.
func (c *Conn) dropShell() bool {
	s := c.takeShell()
	if s != nil {
		s.leave()
	}
	return s != nil
}

// inShell runs a script in a shell that is open, or else in a new one.
func (c *Conn) inShell(ctx context.Context, s Script) error {
	marker, words := newMarker(), &child.Tail{Limit: maxWords}
	answer, errs := c.answers(marker, s.Output), newFrame(marker, words)
	errs.begun = true
	sh := c.takeShell()
	text := ""
	if answer.reused = sh != nil; sh != nil {
		text = next(marker, s.Text)
	} else {
		var err error
		if sh, err = c.newShell(); err != nil {
			return &Error{Kind: Lost, Doing: s.Doing, Cause: err}
		}
		text = first(marker, s.Text)
	}
	status, failure := notTold, error(nil)
	if sh.run(ctx, text, answer, errs) {
		c.keepShell(sh)
	} else {
		sh.close()
		status, failure = sh.status, sh.failure
	}
	switch {
	case errors.Is(failure, errRefused) && c.dropShell():
		return c.inShell(ctx, s)
	case answer.reused && !answer.begun && !errs.ended && ctx.Err() == nil && sh.master == c.master.Load() && c.Alive():
		// The shell ended while it had nothing to do: a script begins with its mark. Over
		// another connection than that it was sent on nothing is told by its absence.
		return c.inShell(ctx, s)
	}
	return c.judge(ctx, s.Doing, c.elevation, answer, string(words.Bytes()), status, failure)
}
