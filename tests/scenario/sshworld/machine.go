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
	cmd    *exec.Cmd
	cancel context.CancelFunc
	in     io.WriteCloser
	out    *bufio.Reader
	said   *child.Tail // what ssh itself says, for errors
}

// Run implements [scenario.Machine]. A session that was lost, as by a reboot,
// is an error once; the next call makes a new one.
func (r *remote) Run(ctx context.Context, script string) (scenario.Output, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	cmd.Stderr = said
	in, err := cmd.StdinPipe()
	if err != nil {
		cancel()
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return err
	}
	r.session = &session{cmd: cmd, cancel: cancel, in: in, out: bufio.NewReader(out), said: said}
	return nil
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
	_ = s.cmd.Wait()
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
