package ssh

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"
	"golang.org/x/crypto/ssh"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

// asked is the exec request of a session on the test's host.
type asked struct {
	channel ssh.Channel
	request *ssh.Request
	line    string
}

func (a asked) accept() { _ = a.request.Reply(true, nil) }

func (a asked) exit(status uint32) {
	_, _ = a.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
	_ = a.channel.Close()
}

// shell runs the line with what comes on the channel, as sshd does.
func shell(a asked) {
	a.accept()
	cmd := exec.Command("/bin/sh", "-c", a.line)
	in, _ := cmd.StdinPipe()
	cmd.Stdout, cmd.Stderr = a.channel, a.channel.Stderr()
	if cmd.Start() != nil {
		a.exit(127)
		return
	}
	go func() {
		_, _ = io.Copy(in, a.channel)
		_ = in.Close()
	}()
	_ = cmd.Wait()
	a.exit(uint32(cmd.ProcessState.ExitCode()))
}

// connected is the real ssh's master connection to a host on loopback, which opens
// sessions as long as there are places and does with each what the test says.
func connected(t *testing.T, places int, does func(asked)) *Conn {
	t.Helper()
	tooltest.Need(t, "ssh", "ssh-keygen")
	dir := t.TempDir()
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(hostKey)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work conc.WaitGroup
	t.Cleanup(work.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	work.Go(func() {
		line, err := listener.Accept()
		if err != nil {
			return
		}
		host, channels, requests, err := ssh.NewServerConn(line, config)
		if err != nil {
			t.Error(err)
			return
		}
		defer host.Close()
		work.Go(func() { ssh.DiscardRequests(requests) })
		for channel := range channels {
			if places--; places < 0 {
				_ = channel.Reject(ssh.ResourceShortage, "no more sessions")
				continue
			}
			session, requests, err := channel.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				for r := range requests {
					if r.Type == "exec" {
						var exec struct{ Line string }
						_ = ssh.Unmarshal(r.Payload, &exec)
						work.Go(func() { does(asked{session, r, exec.Line}) })
						continue
					}
					_ = r.Reply(false, nil)
				}
			})
		}
	})

	runs, err := NewRunDir(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runs.Close() })
	client := &Client{Local: child.Local{Env: append(os.Environ(), "HOME="+dir)}, Dir: runs, TempDir: dir}
	id, err := client.Prepare(t.Context(), "web", Settings{
		Host: "127.0.0.1", User: "root", HostKeys: []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))},
		Options:      []string{fmt.Sprintf("Port=%d", listener.Addr().(*net.TCPAddr).Port)},
		ClientConfig: empty(t, filepath.Join(dir, "client")),
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := id.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func empty(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whatever a session comes to is told as what it is.
func TestRide(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", 1<<18) // more than a channel's window
	for _, tt := range []struct {
		name   string
		does   func(asked)
		places int
		script string
		want   string // of the output, or of the error
		kind   Kind
		exit   int
	}{
		{name: "an answer", does: shell, script: "echo here", want: "here\n"},
		{name: "a big script and answer", does: shell, script: "cat <<'END'\n" + big + "\nEND", want: big + "\n"},
		{name: "big words beside it", does: shell, script: "head -c 5000000 /dev/zero >&2; echo out", want: "out\n"},
		{name: "a failure", does: shell, script: "echo why >&2; exit 7", want: "testing: why", exit: 7},
		{name: "no session", does: shell, places: -1, want: "testing: the session was refused: Session open refused by peer", kind: Lost},
		{name: "no command", does: func(a asked) { _ = a.request.Reply(false, nil) }, want: "testing: the connection ended before the answer was whole", kind: Lost},
		{name: "no shell", does: func(a asked) { a.accept(); _, _ = a.channel.Stderr().Write([]byte("no such shell\n")); a.exit(127) }, want: "testing: no such shell", kind: Lost},
		{name: "cut off", does: func(a asked) { a.accept(); _ = a.channel.Close() }, want: "testing: the connection ended before the answer was whole", kind: Lost},
		{name: "killed", does: func(a asked) {
			a.accept()
			_, _ = a.channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Signal  string
				Core    bool
				Message string
				Tag     string
			}{"KILL", false, "", ""}))
			_ = a.channel.Close()
		}, want: "testing: the connection ended before the answer was whole", kind: Lost},
		{name: "noise", does: func(a asked) { _, _ = a.channel.Write([]byte("welcome\n")); shell(a) }, want: `testing: the login prints on standard output: "welcome" (a login shell's start-up files must be silent for a command)`, kind: Noise},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			conn := connected(t, 1+tt.places, tt.does)
			var out bytes.Buffer
			err := conn.Run(t.Context(), Script{Doing: "testing", Text: tt.script, Output: &out, Timeout: time.Minute})
			var way *Error
			var exit *ExitError
			switch {
			case err == nil:
				if diff := cmp.Diff(tt.want, out.String()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			case errors.As(err, &exit) && exit.Status == tt.exit, errors.As(err, &way) && way.Kind == tt.kind && tt.exit == 0:
				if err.Error() != tt.want {
					t.Errorf("said %q, want %q", err, tt.want)
				}
			default:
				t.Error(err)
			}
		})
	}
}

// Sessions run side by side; one whose output nobody takes is in nobody's way.
func TestRidesSideBySide(t *testing.T) {
	t.Parallel()
	conn := connected(t, 100, shell)
	ctx, cancel := context.WithCancelCause(t.Context())
	stuck := make(chan error)
	go func() {
		stuck <- conn.Run(ctx, Script{Doing: "testing", Text: "head -c 50000000 /dev/zero", Output: blocked{ctx}, Timeout: time.Minute})
	}()
	var work conc.WaitGroup
	for i := range 8 {
		work.Go(func() {
			var out bytes.Buffer
			err := conn.Run(t.Context(), Script{Doing: "testing", Text: fmt.Sprintf("head -c 1000000 /dev/zero; echo %d", i), Output: &out, Timeout: time.Minute})
			if err != nil || out.Len() != 1_000_002 {
				t.Errorf("%d bytes, %v", out.Len(), err)
			}
		})
	}
	work.Wait()
	why := errors.New("enough")
	cancel(why)
	if err := <-stuck; !errors.Is(err, why) {
		t.Errorf("said %v, want %v", err, why)
	}
}

type blocked struct{ ctx context.Context }

func (b blocked) Write([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, context.Cause(b.ctx)
}

// A script that was cancelled ends there: its session is closed.
func TestRideCancelled(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	conn := connected(t, 1, func(a asked) {
		a.accept()
		_, _ = io.Copy(io.Discard, a.channel)
		// Its input is at its end; only a closed channel takes no more.
		for {
			if _, err := a.channel.Write([]byte("x")); err != nil {
				close(closed)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	err := conn.Run(t.Context(), Script{Doing: "testing", Timeout: 300 * time.Millisecond})
	if want := "testing: no answer within 300ms"; err == nil || err.Error() != want {
		t.Errorf("said %v, want %q", err, want)
	}
	<-closed
	if !conn.Alive() {
		t.Errorf("the connection went with the session: %s", conn.words.Text())
	}
}

// A lost connection is told in ssh's own words.
func TestRideLost(t *testing.T) {
	t.Parallel()
	conn := connected(t, 1, func(a asked) {
		a.accept()
		// Nonsense, upon which ssh ends the connection.
		_, _ = a.channel.SendRequest("exit-status", false, nil)
	})
	err := conn.Run(t.Context(), Script{Doing: "testing", Timeout: time.Minute})
	var way *Error
	if !errors.As(err, &way) || way.Kind != Lost {
		t.Errorf("said %v, want that the connection is lost", err)
	}
	conn.Close()
	err = conn.Run(t.Context(), Script{Doing: "testing", Timeout: time.Minute})
	if !errors.As(err, &way) || way.Kind != Lost {
		t.Errorf("said %v, want that the connection is lost", err)
	}
}
