package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
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
const nextScripts = `while IFS= read -r size; do
    script=$(head -c "$size")
    case $script in *'` + lastLine + `') eval "$script" ;; *) exit 1 ;; esac
done
exit 0
`

// leaveTimeout bounds the polite end of a shell that waits, a round trip.
const leaveTimeout = 2 * time.Second

const lastLine = "# whole"

// framed is a script between its marks on both streams, in a subshell without our input.
func framed(marker, script string) string {
	return "printf '\\n%s begin\\n' " + marker + "\n" +
		"printf '\\n%s begin\\n' " + marker + " >&2\n" +
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
	s := &shell{in: w, end: end, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.status, s.failure = c.ride(life, session{line: c.elevation.command("/bin/sh"), stdin: r, stdout: &s.out, stderr: &s.err})
	}()
	return s, nil
}

// run sends a text and waits until both frames have ended, or the session has.
func (s *shell) run(ctx context.Context, text string, out, errs *frame) {
	done := make(chan struct{})
	var open atomic.Int32
	open.Store(2)
	ended := func() {
		if open.Add(-1) == 0 {
			close(done)
		}
	}
	out.onEnd, errs.onEnd = ended, ended
	s.out.set(out)
	s.err.set(errs)
	var writing conc.WaitGroup
	writing.Go(func() { _, _ = io.WriteString(s.in, text) }) // the answer tells of one that failed
	select {
	case <-done:
	case <-s.ended:
	case <-ctx.Done():
		s.close()
	}
	writing.Wait()
	s.out.set(nil)
	s.err.set(nil)
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
	if s != nil && s.over() {
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
	sh.run(ctx, text, answer, errs)
	status, failure := notTold, error(nil)
	if answer.ended && errs.ended && !sh.over() {
		c.keepShell(sh)
	} else {
		sh.close()
		status, failure = sh.status, sh.failure
	}
	if errors.Is(failure, errRefused) && c.dropShell() {
		return c.inShell(ctx, s)
	}
	said := errs.before() + string(words.Bytes())
	return c.judge(ctx, s.Doing, c.elevation, answer, said, status, failure)
}
