// Package ssh makes the one connection of a node and runs everything over it.
//
// Every connection is made by the OpenSSH client with one generated
// configuration file (see [config]), so commands, copy, reconnect and hops
// have the same identity and trust. One master connection is opened per node;
// everything else rides on it and can't dial on its own.
package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// Client opens connections for one run.
type Client struct {
	// Local runs the OpenSSH client.
	Local child.Local
	// Dir is the run's private directory.
	Dir *RunDir
	// TempDir is where saved host keys live when nothing better is writable;
	// empty means /tmp.
	TempDir string
	// ConnectTimeout bounds each try to connect (ssh's ConnectTimeout); 0 means 15 s.
	ConnectTimeout time.Duration
	// LoginTimeout bounds a whole connection with its login; 0 means 150 s.
	// It is long, because a host whose logind hangs takes two minutes to let
	// anybody in, and is then quite able to be repaired.
	LoginTimeout time.Duration
	// CommandTimeout bounds each remote command that isn't the switch; 0 means 2 min.
	CommandTimeout time.Duration
	// Keepalive is how long a frozen session lives, hops included; 0 means 30 s.
	Keepalive time.Duration

	saving sync.Mutex // held while a file of saved keys is written to
	keys   sync.Map   // the checks of key files
	gates  sync.Map   // where logins of this run may crowd, by name
}

type keyCheck struct {
	once sync.Once
	err  error
}

const (
	defaultConnectTimeout = 15 * time.Second
	defaultLoginTimeout   = 150 * time.Second
	defaultCommandTimeout = 2 * time.Minute
	defaultKeepalive      = 30 * time.Second
	keepaliveCount        = 3
	// closeTimeout bounds the polite end of a connection.
	closeTimeout = 5 * time.Second
	// maxWords bounds what is kept of a session's standard error.
	maxWords = 1 << 20
)

// Conn is an open master connection to one node.
type Conn struct {
	client *Client
	// destination is what ssh is told to connect to.
	destination string
	config      string
	rider       string
	controlPath string
	elevation   Elevation
	identity    *Identity
	// options are arguments of the master beside those that every master has.
	options []string
	// Login is how long the connection with its login took.
	Login time.Duration
	// answer is how long the host then took to begin with the first command; 0 before that.
	answer atomic.Int64
	// Notes are true things about how the connection was made.
	Notes []string

	idle    sync.Mutex
	waiting *shell // for the next script; nil when there is none

	// master is the one that is open, or was last; nil before the first one. Another
	// goroutine's script may look at it while a new one is made.
	master atomic.Pointer[master]
}

// master is the process that holds the connection.
type master struct {
	end  context.CancelFunc
	done chan struct{} // closed when the process has ended
	// words is its standard error; read only after done is closed.
	words *child.Tail
}

// riderHost is the destination of everything that rides on the master. It is
// made up, so that brackets, zones, odd users and a host called localhost play
// no part in what Nix makes of its store URL.
const riderHost = "deploy-ssh-node"

// Connect opens the node's master connection.
func (id *Identity) Connect(ctx context.Context) (*Conn, error) {
	taken, err := id.takeOver()
	if err != nil {
		return nil, err
	}
	conn := &Conn{
		client: id.client, identity: id, destination: id.Settings.Host, elevation: id.Settings.Elevate,
		config: id.file("config"), rider: id.file("rider"), controlPath: id.files.controlPath,
	}
	if err := conn.open(ctx); err != nil {
		return nil, err
	}
	conn.Notes = append(append(conn.Notes, taken...), id.notSaved(ctx)...)
	return conn, nil
}

// open connects. Where that fails among other logins that begin at the same sshd, it
// is tried again alone.
func (c *Conn) open(ctx context.Context) error {
	doing := "connecting to " + c.destination
	g := c.client.gate(c.identity)
	visit, err := g.enter(ctx)
	if err != nil {
		return &Error{Kind: Unreachable, Doing: doing, Words: "waiting for other logins", Cause: err}
	}
	err = c.dial(ctx)
	var failed *Error
	if crowded := visit.leave(); !crowded || !errors.As(err, &failed) || failed.Kind != Unreachable || ctx.Err() != nil {
		return err
	}
	if visit, again := g.only(ctx, false); again == nil {
		defer visit.leave()
		if err = c.dial(ctx); err == nil {
			c.Notes = append(c.Notes, "connected at the second try; the first one, among others, came to: "+failed.Error())
		}
	}
	return err
}

// dial starts the master and waits until it takes riders.
func (c *Conn) dial(ctx context.Context) error {
	began := time.Now()
	doing := "connecting to " + c.destination
	limit := or(c.client.LoginTimeout, defaultLoginTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no login within %v", limit))
	defer cancel()

	// The master lives as long as the connection, not as long as this call.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	words := &child.Tail{Limit: 64 << 10} // read only after done is closed
	cmd, err := c.client.Local.Start(life, child.Command{
		Name:   "ssh",
		Args:   append(append([]string{"-F", c.config, "-o", "ControlMaster=yes"}, c.options...), "-N", "--", c.destination),
		Stderr: words,
	})
	if err != nil {
		end()
		return &Error{Kind: Unreachable, Doing: doing, Cause: err}
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	c.master.Store(&master{end: end, done: done, words: words})

	// ssh binds the socket under another name and moves it into place when it
	// listens, after the login; so its presence is the sign.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			end()
			return c.refused(ctx, doing, words.Text())
		case <-ctx.Done():
			end()
			<-done
			return &Error{Kind: Unreachable, Doing: doing, Words: essence(words.Text()), Cause: context.Cause(ctx)}
		case <-tick.C:
			if _, err := os.Stat(c.controlPath); err == nil {
				c.Login = time.Since(began)
				return nil
			}
		}
	}
}

// Reopen makes a new master from the same configuration after the old one was lost.
func (c *Conn) Reopen(ctx context.Context) error {
	c.hangUp()
	_ = os.Remove(c.controlPath)
	return c.open(ctx)
}

// Answer is how long the host took to begin with the first command; 0 before that.
func (c *Conn) Answer() time.Duration { return time.Duration(c.answer.Load()) }

// Alive reports whether the master's process still runs. A connection can be
// dead before its master notices: see the keepalive.
func (c *Conn) Alive() bool {
	select {
	case <-c.master.Load().done:
		return false
	default:
		return true
	}
}

// Script is one remote command: text for sh on the host.
type Script struct {
	// Doing names it in errors, such as "reading the state of db".
	Doing string
	// Text is POSIX shell. Its standard input is empty, and no process that it leaves
	// behind may print: the next script's output would have it.
	Text string
	// Output receives what the script prints, as it comes; nil drops it.
	Output io.Writer
	// Timeout bounds it; 0 means the client's CommandTimeout, negative no bound.
	Timeout time.Duration
	// Attended gives the script the function attended, see attended.sh.
	Attended bool
	// AsLogin runs it as the login user, also where the settings say how to elevate.
	AsLogin bool
}

// Run runs a script on the host, as root where the settings say how to elevate.
// An [*ExitError] is the script's own failure; an [*Error] is one of the way there,
// after which nothing is known of what the script did.
func (c *Conn) Run(ctx context.Context, s Script) error {
	if s.Attended || s.AsLogin {
		return c.run(ctx, s, c.ride)
	}
	ctx, cancel := c.limit(ctx, s)
	defer cancel()
	return c.inShell(ctx, s)
}

// FreshRun is Run over a connection of its own, with a login of its own. It tells
// whether anybody can still get in, which an open connection can't. The client
// configuration's forwards are left out: the open connection holds their ports. No script
// is Attended there.
func (c *Conn) FreshRun(ctx context.Context, s Script) error {
	if s.Timeout == 0 {
		s.Timeout = or(c.client.LoginTimeout, defaultLoginTimeout)
	}
	try := func() error {
		return c.run(ctx, s, c.fresh)
	}
	g := c.client.gate(c.identity)
	visit := g.hurry()
	err := try()
	var failed *Error
	if crowded := visit.leave(); !crowded || !errors.As(err, &failed) || !failed.unheard || ctx.Err() != nil {
		return err
	}
	// Perhaps an sshd that other logins of this run begin at, too, let in no more.
	if visit, again := g.only(ctx, true); again == nil {
		defer visit.leave()
		err = try()
	}
	return err
}

// fresh runs a session on a connection of its own.
func (c *Conn) fresh(ctx context.Context, s session) (status int, err error) {
	defer s.stdin.Close()
	_, err = c.client.Local.Run(ctx, child.Command{
		Name:  "ssh",
		Args:  []string{"-F", c.config, "-o", "ControlPath=none", "-o", "ClearAllForwardings=yes", "-T", "--", c.destination, s.line},
		Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr, Subject: "ssh",
	})
	var exit *child.Error
	if errors.As(err, &exit) && exit.Cause == nil {
		return exit.ExitCode, nil
	}
	if err != nil {
		return notTold, err
	}
	return 0, nil
}

// limit bounds a script.
func (c *Conn) limit(ctx context.Context, s Script) (context.Context, context.CancelFunc) {
	timeout := s.Timeout
	if timeout == 0 {
		timeout = or(c.client.CommandTimeout, defaultCommandTimeout)
	}
	if timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
}

// answers is the frame of a script's output, which may be nil.
func (c *Conn) answers(marker string, output io.Writer) *frame {
	if output == nil {
		output = io.Discard
	}
	answer, asked := newFrame(marker, output), time.Now()
	answer.onBegin = func() { c.answer.CompareAndSwap(0, int64(time.Since(asked))) }
	return answer
}

// run runs a script in a session of its own.
func (c *Conn) run(ctx context.Context, s Script, way func(context.Context, session) (int, error)) error {
	ctx, cancel := c.limit(ctx, s)
	defer cancel()
	elevation := c.elevation
	if s.AsLogin {
		elevation = ""
	}
	for {
		marker := newMarker()
		stdin, err := c.stdin(marker, s)
		if err != nil {
			return &Error{Kind: Lost, Doing: s.Doing, Cause: err}
		}
		answer, words := c.answers(marker, s.Output), &child.Tail{Limit: maxWords}
		status, err := way(ctx, session{line: elevation.command("/bin/sh"), stdin: stdin, stdout: answer, stderr: words})
		if errors.Is(err, errRefused) && c.dropShell() {
			continue
		}
		return c.judge(ctx, s.Doing, elevation, answer, string(words.Bytes()), status, err)
	}
}

// judge says what came of a framed script: by its answer and, where that is not whole,
// by what was said beside it, the session's exit status and the error of the way.
func (c *Conn) judge(ctx context.Context, doing string, elevation Elevation, answer *frame, words string, status int, err error) error {
	said := essence(strings.ToValidUTF8(words, "�"))
	switch noise := answer.noisyLine(); {
	case answer.failed != nil:
		return fmt.Errorf("%s: %w", doing, answer.failed)
	case noise != "" && (answer.begun || context.Cause(ctx) == nil && c.Alive()):
		if strings.Contains(noise, answer.marker()) {
			return &Error{Kind: Noise, Doing: doing, Words: "something on the host changes its output: lines come back with other line ends"}
		}
		return &Error{Kind: Noise, Doing: doing,
			Words: fmt.Sprintf("the login prints on standard output: %q (a login shell's start-up files must be silent for a command)", noise)}
	case answer.ended && answer.status != 0:
		return &ExitError{Doing: doing, Status: answer.status, Words: strings.TrimSpace(said)}
	case answer.ended:
		// Whatever became of the session at its end, the script's own word counts.
		return nil
	case context.Cause(ctx) != nil:
		return &Error{Kind: Lost, Doing: doing, Words: said, Cause: context.Cause(ctx)}
	case err != nil:
		return &Error{Kind: Lost, Doing: doing, Words: said, Cause: err, unheard: !answer.begun}
	}
	if elevation != "" && !answer.begun && c.Alive() && status != 0 && status != notTold {
		// The login is there and our shell never began: what stands between them refused.
		return &Error{Kind: ElevationRefused, Doing: doing, Words: or(said, fmt.Sprintf("%s ended with exit status %d", elevation, status))}
	}
	return &Error{Kind: Lost, Doing: doing, Words: or(said, "the connection ended before the answer was whole"), unheard: !answer.begun}
}

// stdin is what the host's shell reads.
func (c *Conn) stdin(marker string, s Script) (io.ReadCloser, error) {
	if !s.Attended {
		return text(wrap(marker, s.Text, "")), nil
	}
	// Gone for the host when it would be for ssh here.
	patience := or(c.client.Keepalive, defaultKeepalive)
	return attend(wrap(marker, attendedScript(patience)+s.Text, "3<&0 "), patience/6)
}

// NixStore returns the store URL of the node for Nix on the deployer, and the
// environment that makes Nix ride on this connection. daemon is the path of
// nix-daemon on the host.
func (c *Conn) NixStore(daemon string) (url string, env []string) {
	c.dropShell() // Nix opens sessions of its own
	url = "ssh-ng://" + riderHost
	if daemon != "" {
		url += "?remote-program=" + strings.ReplaceAll(c.elevation.prefix()+daemon, " ", "%20")
	}
	return url, []string{"NIX_SSHOPTS=-F " + c.rider}
}

// Close ends the connection. The host hears goodbye.
func (c *Conn) Close() {
	c.hangUp()
	_ = os.RemoveAll(filepath.Dir(c.controlPath))
}

// hangUp ends the master, on a clock of its own, so that it works after a cancel.
func (c *Conn) hangUp() {
	if s := c.takeShell(); s != nil {
		s.close()
	}
	m := c.master.Load()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	// Asked for first: an ssh as of 9.2 can sleep over a signal.
	if control, stop, err := dialMux(ctx, c.controlPath); err == nil {
		_ = control.terminate()
		stop()
		_ = control.Close()
		select {
		case <-m.done:
		case <-ctx.Done():
		}
	}
	m.end()
	<-m.done
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
