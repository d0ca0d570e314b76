package sshworld

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
	"github.com/sourcegraph/conc"
)

// local is this machine.
type local struct{}

// Run implements [scenario.Machine].
func (local) Run(ctx context.Context, script string) (scenario.Output, error) {
	result, err := child.Local{Env: os.Environ()}.Run(ctx, child.Command{Name: "/bin/sh", Args: []string{"-c", script}})
	out := scenario.Output{Stdout: string(result.Stdout), Stderr: string(result.Stderr)}
	var ended *child.Error
	if errors.As(err, &ended) && ended.Cause == nil {
		out.Code, err = ended.ExitCode, nil
	}
	return out, err
}

// serve is what runs on a target: it reads scripts and answers with what became of them.
//
//go:embed serve.sh
var serve string

// remote is a target, reached by one ssh connection with one session, which
// lasts. Scenarios count the connections and sessions that the program under
// test makes: those of the onlooker must not be among them, and they aren't when
// a scenario first looks before it begins to count.
type remote struct {
	client Client
	host   string
	port   int

	mu      sync.Mutex
	session *session // nil before the first use and after a loss
}

// session is a running serve.sh.
type session struct {
	cancel context.CancelFunc
	in     io.WriteCloser
	output *io.PipeReader
	out    *bufio.Reader  // what output brings
	said   *child.Tail    // what ssh itself says, for errors
	over   chan struct{}  // closed when ssh has ended
	waits  conc.WaitGroup // for that
}

// Run implements [scenario.Machine]. A session that was lost meanwhile, as by a reboot
// or by a login manager that lost count of it, is made anew; one that is lost under a
// script is an error, for nobody knows how far the script came.
func (r *remote) Run(ctx context.Context, script string) (scenario.Output, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != nil && r.session.ended() {
		r.session.end()
		r.session = nil
	}
	if r.session == nil {
		if err := r.dial(); err != nil {
			return scenario.Output{}, fmt.Errorf("%s: %w", r.host, err)
		}
	}
	// The end of ssh is what unblocks the exchange.
	stop := context.AfterFunc(ctx, r.session.cancel)
	out, err := r.session.exchange(script)
	if !stop() || err != nil {
		said := r.session.end()
		r.session = nil
		if ctx.Err() != nil {
			return out, fmt.Errorf("%s: %w", r.host, context.Cause(ctx))
		}
		return out, fmt.Errorf("%s: %w: %s", r.host, err, said)
	}
	return out, nil
}

func (r *remote) dial() error {
	// The session outlives the call that makes it; hangUp ends it.
	ctx, cancel := context.WithCancel(context.Background())
	said := &child.Tail{Limit: 64 << 10}
	cmd := exec.CommandContext(ctx, "ssh", "-F", "none", "-T",
		"-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=15",
		"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", "UserKnownHostsFile="+r.client.KnownHosts,
		"-i", r.client.Key, "-p", strconv.Itoa(r.port), "-l", r.client.User, r.host,
		"exec /bin/sh -c '"+serve+"'")
	var err error
	r.session, err = begin(cmd, cancel, said)
	return err
}

// begin starts what runs serve.sh; cancel ends it.
func begin(cmd *exec.Cmd, cancel context.CancelFunc, said *child.Tail) (*session, error) {
	output, toOutput := io.Pipe()
	cmd.Stdout, cmd.Stderr = toOutput, said
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &session{cancel: cancel, in: in, output: output, out: bufio.NewReader(output), said: said, over: make(chan struct{})}
	s.waits.Go(func() {
		_ = cmd.Wait()
		toOutput.Close()
		close(s.over)
	})
	return s, nil
}

// ended tells whether ssh has ended by itself.
func (s *session) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// exchange sends one script and reads its output; see serve.sh.
func (s *session) exchange(script string) (scenario.Output, error) {
	if _, err := fmt.Fprintf(s.in, "%d\n%s", len(script), script); err != nil {
		return scenario.Output{}, fmt.Errorf("sending a script: %w", err)
	}
	line, err := s.out.ReadString('\n')
	if err != nil {
		return scenario.Output{}, fmt.Errorf("waiting for a script's end: %w", err)
	}
	var code, stdout, stderr int
	if n, err := fmt.Sscanf(line, "ended %d %d %d\n", &code, &stdout, &stderr); n != 3 || err != nil {
		return scenario.Output{}, fmt.Errorf("the target answered %q", strings.TrimSpace(line))
	}
	text := make([]byte, stdout+stderr)
	if _, err := io.ReadFull(s.out, text); err != nil {
		return scenario.Output{}, fmt.Errorf("reading a script's output: %w", err)
	}
	return scenario.Output{Stdout: string(text[:stdout]), Stderr: string(text[stdout:]), Code: code}, nil
}

// end ends ssh and returns its words.
func (s *session) end() string {
	s.in.Close()
	s.cancel()
	// What it still has to say is read by nobody.
	s.output.Close()
	s.waits.Wait()
	return s.said.Text()
}

// hangUp closes the connection, if there is one.
func (r *remote) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != nil {
		r.session.end()
		r.session = nil
	}
}
