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
	"sync"
	"sync/atomic"
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
	free    func() // the session's place is, as sshd has it before it says so
}

func (a asked) accept() { _ = a.request.Reply(true, nil) }

func (a asked) exit(status uint32) {
	_, _ = a.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
	a.free()
	_ = a.channel.Close()
}

// serve runs the line with what comes on the channel, as sshd does.
func serve(a asked) {
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

// connected is the real ssh's master connection to a host on loopback, which has
// places for so many sessions at once and does with each what the test says.
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
	var open atomic.Int32
	t.Cleanup(work.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	welcome := func(line net.Conn) {
		host, channels, requests, err := ssh.NewServerConn(line, config)
		if err != nil {
			t.Error(err)
			return
		}
		defer host.Close()
		work.Go(func() { ssh.DiscardRequests(requests) })
		for channel := range channels {
			if open.Add(1) > int32(places) {
				open.Add(-1)
				_ = channel.Reject(ssh.ResourceShortage, "no more sessions")
				continue
			}
			session, requests, err := channel.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				free := sync.OnceFunc(func() { open.Add(-1) })
				defer free()
				for r := range requests {
					if r.Type == "exec" {
						var exec struct{ Line string }
						_ = ssh.Unmarshal(r.Payload, &exec)
						work.Go(func() { does(asked{session, r, exec.Line, free}) })
						continue
					}
					_ = r.Reply(false, nil)
				}
			})
		}
	}
	work.Go(func() {
		for {
			line, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() { welcome(line) })
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
		{name: "an answer", does: serve, script: "echo here", want: "here\n"},
		{name: "a big script and answer", does: serve, script: "cat <<'END'\n" + big + "\nEND", want: big + "\n"},
		{name: "big words beside it", does: serve, script: "head -c 5000000 /dev/zero >&2; echo out", want: "out\n"},
		{name: "a failure", does: serve, script: "echo why >&2; exit 7", want: "testing: why", exit: 7},
		{name: "no session", does: serve, places: -1, want: "testing: the session was refused: Session open refused by peer", kind: Lost},
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
		{name: "noise", does: func(a asked) { _, _ = a.channel.Write([]byte("welcome\n")); serve(a) }, want: `testing: the login prints on standard output: "welcome" (a login shell's start-up files must be silent for a command)`, kind: Noise},
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
	conn := connected(t, 100, serve)
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
		t.Errorf("the connection went with the session: %s", conn.master.Load().words.Text())
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

// counted serves sessions and counts them; sh is what the host has as /bin/sh.
func counted(sh string, sessions *atomic.Int32) func(asked) {
	return func(a asked) {
		sessions.Add(1)
		a.line = strings.ReplaceAll(a.line, "/bin/sh", sh)
		serve(a)
	}
}

// One script after the other runs in one session, and none hears of another.
func TestShell(t *testing.T) {
	t.Parallel()
	for _, sh := range hostShells(t) {
		t.Run(sh, func(t *testing.T) {
			t.Parallel()
			var sessions atomic.Int32
			conn := connected(t, 100, counted(sh, &sessions))
			big := strings.Repeat("0123456789abcdef", 1<<16)
			for i, tt := range []struct {
				script, want string
				sessions     int32
			}{
				{"echo one; echo words >&2; cd /; x=1; trap 'echo trapped' EXIT", "one\ntrapped\n", 1},
				{"echo two $x; cat; exit 0", "two\n", 1},
				{"cat <<'END'\n" + big + "\nEND", big + "\n", 1},
				{"echo to the last >&2; exit 3", "testing: to the last", 1},
				{"printf 'no end'", "no end", 1},
				{"(sleep 0.2; echo late) & echo early", "early\n", 1},
				{"echo 'not late'", "not late\n", 1},
				{"echo '" + lastLine + "'\n", lastLine + "\n", 1},
				{"kill -KILL $$; sleep 0.1", "testing: the connection ended before the answer was whole", 1},
				{"echo again", "again\n", 2},
				{"sleep 1", "testing: no answer within 200ms", 2},
				{"echo and again", "and again\n", 3},
			} {
				if strings.Contains(tt.script, "not late") {
					time.Sleep(400 * time.Millisecond) // what was left behind speaks up in between
				}
				var out bytes.Buffer
				limit := time.Minute
				if tt.script == "sleep 1" {
					limit = 200 * time.Millisecond
				}
				got := ""
				if err := conn.Run(t.Context(), Script{Doing: "testing", Text: tt.script, Output: &out, Timeout: limit}); err != nil {
					got = err.Error()
				} else {
					got = out.String()
				}
				if diff := cmp.Diff(tt.want, got); diff != "" || sessions.Load() != tt.sessions {
					t.Fatalf("script %d: %d sessions, want %d (-want +got):\n%s", i, sessions.Load(), tt.sessions, diff)
				}
			}
		})
	}
}

// A text that is cut short is not run, neither the first nor a later one.
func TestShellCutShort(t *testing.T) {
	const begun = "echo begun\n: "
	for _, sh := range hostShells(t) {
		for _, text := range []string{first(marker, begun+strings.Repeat("x", 100)), next(marker, begun+strings.Repeat("x", 100))} {
			opening := ""
			if text[0] != '{' {
				opening = "{\n" + nextScripts + "}\n"
			}
			for cut := range len(text) - 1 {
				if cut%7 != 0 && cut < len(text)-20 {
					continue
				}
				cmd := exec.Command(sh)
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				cmd.Stdout = &out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(in, opening)
				if opening != "" {
					time.Sleep(5 * time.Millisecond) // as the answer to the first one would take
				}
				_, _ = io.WriteString(in, text[:cut])
				_ = in.Close()
				_ = cmd.Wait()
				if strings.Contains(out.String(), "begun") {
					t.Errorf("%s ran what was cut after %d of %d bytes:\n%s", sh, cut, len(text), text[:cut])
				}
			}
		}
	}
}

// Where a host opens one session at a time, the shell that waits makes room.
func TestShellMakesRoom(t *testing.T) {
	t.Parallel()
	var sessions atomic.Int32
	conn := connected(t, 1, counted("/bin/sh", &sessions))
	for range 2 {
		for _, s := range []Script{{Text: "echo one"}, {Text: "attended echo two", Attended: true}, {Text: "echo three", AsLogin: true}} {
			var out bytes.Buffer
			s.Doing, s.Output, s.Timeout = "testing", &out, time.Minute
			if err := conn.Run(t.Context(), s); err != nil || !strings.HasSuffix(s.Text, strings.TrimSpace(out.String())) {
				t.Errorf("%s: %q, %v", s.Text, out.String(), err)
			}
		}
		if err := conn.Run(t.Context(), Script{Doing: "testing", Text: ":"}); err != nil {
			t.Error(err)
		}
		var out bytes.Buffer
		status, err := conn.Exec(t.Context(), Command{Doing: "testing", Args: []string{"sh", "-c", "echo four; exit 4"}, Stdout: &out, Stderr: io.Discard})
		if err != nil || status != 4 || out.String() != "four\n" {
			t.Errorf("exec: %q, %d, %v", out.String(), status, err)
		}
	}
}

// A login that sends a stream elsewhere keeps no script waiting, and has its answer where
// there is one.
func TestShellLacksStream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ login, script, want string }{
		{"exec 2>/dev/null", "echo here; echo words >&2", "here\n"},
		{"exec 2>/dev/null", "echo words >&2; exit 3", "testing: exit status 3"},
		{"exec 2>&-", "echo here", "here\n"},
		{"exec 2>&1", "echo here", "here\n"},
		{"exec >/dev/null", "echo here", "testing: the connection ended before the answer was whole"},
	} {
		t.Run(tt.login, func(t *testing.T) {
			t.Parallel()
			conn := connected(t, 100, func(a asked) {
				a.line = tt.login + "\n" + a.line
				serve(a)
			})
			for range 2 {
				var out bytes.Buffer
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := conn.Run(ctx, Script{Doing: "testing", Text: tt.script, Output: &out, Timeout: -1})
				cancel()
				got := out.String()
				if err != nil {
					got = err.Error()
				}
				if ctx.Err() == context.DeadlineExceeded || got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			}
		})
	}
}

// A shell that ends while it waits for a script takes none with it; one that has begun a
// script is another matter.
func TestShellEndsIdle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, begins, want string
		sessions           int32
	}{
		{"before the script", "", "two\n", 2},
		{"in it", "\nM begin\n", "testing: the connection ended before the answer was whole", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var sessions atomic.Int32
			conn := connected(t, 100, func(a asked) {
				if sessions.Add(1) > 1 {
					serve(a)
					return
				}
				a.accept()
				cmd := exec.Command("/bin/sh")
				in, _ := cmd.StdinPipe()
				cmd.Stdout, cmd.Stderr = a.channel, a.channel.Stderr()
				if err := cmd.Start(); err != nil {
					t.Error(err)
				}
				b := make([]byte, 32<<10)
				n, _ := a.channel.Read(b)
				_, _ = in.Write(b[:n])
				n, _ = a.channel.Read(b) // the second script has arrived
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if tt.begins != "" {
					text := string(b[:n])
					mark := text[strings.Index(text, "deploy-ssh-"):]
					mark, _, _ = strings.Cut(mark, "\n")
					_, _ = io.WriteString(a.channel, strings.Replace(tt.begins, "M", mark, 1))
				}
				a.exit(137)
			})
			got := ""
			for _, script := range []string{"echo one", "echo two"} {
				var out bytes.Buffer
				err := conn.Run(t.Context(), Script{Doing: "testing", Text: script, Output: &out, Timeout: time.Minute})
				if got = out.String(); err != nil {
					got = err.Error()
				}
			}
			if got != tt.want || sessions.Load() != tt.sessions {
				t.Errorf("got %q in %d sessions, want %q in %d", got, sessions.Load(), tt.want, tt.sessions)
			}
		})
	}
}

// What the login exports under the names that the shell itself uses is nobody's.
func TestShellEnvironment(t *testing.T) {
	t.Parallel()
	for _, sh := range hostShells(t) {
		conn := connected(t, 100, func(a asked) {
			a.line = "export script=a size=b status=c\n" + strings.ReplaceAll(a.line, "/bin/sh", sh)
			serve(a)
		})
		for _, script := range []string{"echo one", ": " + strings.Repeat("x", 300_000) + "\nsh -c 'echo one'"} {
			var out bytes.Buffer
			err := conn.Run(t.Context(), Script{Doing: "testing", Text: script, Output: &out, Timeout: time.Minute})
			if err != nil || out.String() != "one\n" {
				t.Errorf("%s: %q, %v", sh, out.String(), err)
			}
		}
	}
}

// Scripts of others go on, or are lost, while the connection is made anew.
func TestShellReopen(t *testing.T) {
	t.Parallel()
	conn := connected(t, 100, serve)
	var work conc.WaitGroup
	for range 2 {
		work.Go(func() {
			for range 20 {
				err := conn.Run(t.Context(), Script{Doing: "testing", Text: "sleep 0.01", Timeout: time.Minute})
				var way *Error
				if err != nil && (!errors.As(err, &way) || way.Kind != Lost) {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		time.Sleep(30 * time.Millisecond)
		if err := conn.Reopen(t.Context()); err != nil {
			t.Error(err)
		}
	}
	work.Wait()
	if err := conn.Run(t.Context(), Script{Doing: "testing", Text: ":", Timeout: time.Minute}); err != nil {
		t.Error(err)
	}
}
