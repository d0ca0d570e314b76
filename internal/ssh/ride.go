package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
)

// notTold is the exit status of a session that ended without one, as ssh has it.
const notTold = 255

// lastWords bounds the wait for the end of a master that has dropped a session.
const lastWords = 200 * time.Millisecond

// session is a command line for the login shell of the host.
type session struct {
	line string
	// stdin is closed when the session has ended, which must end a Read.
	stdin          io.ReadCloser
	stdout, stderr io.Writer
}

// ride runs a session on the open connection, without an ssh process of its own: the
// master has logged in, and its control socket is all that is dialled. An error is one
// of the way; without, status is what the host told of the command's end: 255 for
// nothing, as after a signal.
func (c *Conn) ride(ctx context.Context, s session) (status int, err error) {
	defer s.stdin.Close()
	m := c.master.Load()
	control, stop, err := dialMux(ctx, c.controlPath)
	if err != nil {
		return notTold, m.gone(err)
	}
	defer stop()
	defer control.Close()
	var ends pipes
	defer ends.close()
	// The end of the socket ends the session on the host, too.
	hangUp := func() {
		_ = control.Close()
		ends.close()
	}
	defer context.AfterFunc(ctx, hangUp)()

	// Ours of each pipe, and what the master gets.
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return notTold, fmt.Errorf("making a pipe: %w", err)
		}
		ends.add(r, w)
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	if err := control.session(s.line, theirs); err != nil {
		return notTold, m.gone(err)
	}
	for _, f := range theirs {
		_ = f.Close()
	}

	var work conc.WaitGroup
	var failed [2]error
	work.Go(func() {
		_, _ = io.Copy(ours[0], s.stdin) // the answer tells of what did not arrive
		_ = ours[0].Close()
	})
	var output conc.WaitGroup
	for i, to := range []io.Writer{s.stdout, s.stderr} {
		output.Go(func() {
			if _, failed[i] = io.Copy(to, ours[i+1]); failed[i] != nil {
				hangUp()
			}
		})
	}
	status, err = control.exit()
	if err != nil {
		hangUp()
	}
	output.Wait()
	_ = s.stdin.Close()
	ends.close()
	work.Wait()
	switch failure := errors.Join(failed[:]...); {
	case ctx.Err() != nil:
		return status, context.Cause(ctx)
	case errors.Is(err, errRefused):
		return notTold, fmt.Errorf("the session was %w", err)
	case err != nil:
		return notTold, m.gone(err)
	case failure != nil:
		return notTold, failure
	}
	return status, nil
}

// gone is the error of a session that the master has dropped: its own last words, where
// that is because it ends.
func (m *master) gone(err error) error {
	select {
	case <-m.done:
		if words := essence(m.words.Text()); words != "" {
			return errors.New(words)
		}
		return errors.New("the connection has ended")
	case <-time.After(lastWords):
		return err
	}
}

// pipes are files that are closed together, once.
type pipes struct {
	mu     sync.Mutex
	closed bool
	files  []*os.File
}

func (p *pipes) add(files ...*os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files = append(p.files, files...)
	if p.closed {
		p.closeAll()
	}
}

func (p *pipes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.closeAll()
}

func (p *pipes) closeAll() {
	for _, f := range p.files {
		_ = f.Close() // the second time it says so, and no more
	}
}

// text is standard input that is there as a whole.
func text(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }
