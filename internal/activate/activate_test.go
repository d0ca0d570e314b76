package activate

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

func TestWords(t *testing.T) {
	for _, tt := range []struct {
		name, log string
		want      verdict.Words
	}{
		{"nothing", "setting up /etc...\nactivating the configuration...\n", verdict.Words{}},
		{"failed units", "warning: the following units failed: a.service, b@x.service\n", verdict.Words{FailedUnits: []string{"a.service", "b@x.service"}}},
		{"no line end", "warning: the following units failed: a.service", verdict.Words{FailedUnits: []string{"a.service"}}},
		{"jobs", "Failed to start a.service\nFailed to reload b.service\n", verdict.Words{RefusedJobs: []string{"Failed to start a.service", "Failed to reload b.service"}}},
		{"activate", "Failed to run activate script\n", verdict.Words{ActivateFailed: true, LastError: "Failed to run activate script"}},
		{"user", "warning: user activation for alice failed\n", verdict.Words{UserActivation: []string{"alice"}}},
		{"check", "no room\nPre-switch check 'disk' failed\nPre-switch checks failed\n", verdict.Words{Check: "disk"}},
		{"check, older", "Pre-switch checks failed\n", verdict.Words{Check: "its name was not given"}},
		{"bus", "Error: Failed to open dbus connection\n\nCaused by:\n    Failed to connect to socket\n", verdict.Words{LastError: "Error: Failed to open dbus connection; Failed to connect to socket"}},
		{"logind", "Unable to list users with logind: timed out\n", verdict.Words{NoLogind: true, LastError: "Unable to list users with logind: timed out"}},
		{"inhibitors", "There are changes to critical components of the system:\n\ndbus-implementation : dbus -> broker\nother : a -> b\n\nSwitching into this system is not recommended.\n",
			verdict.Words{Inhibited: true, LastError: "dbus-implementation : dbus -> broker; other : a -> b"}},
		{"a try that was done again", "warning: user activation for alice failed\ndeploy-ssh: only the activation of a user failed; trying once more in 12 s\nFailed to start a.service\n", verdict.Words{RefusedJobs: []string{"Failed to start a.service"}}},
		{"a quoted warning is none", "echo warning: the following units failed: a.service\n", verdict.Words{}},
		{"binary", "\x1b[31m\xff\xfe\x00\nFailed to start a.service\n", verdict.Words{RefusedJobs: []string{"Failed to start a.service"}}},
	} {
		for _, size := range []int{1, 5, 1 << 20} {
			var s wordScanner
			for in := []byte(tt.log); len(in) > 0; {
				n := min(size, len(in))
				s.Write(in[:n])
				in = in[n:]
			}
			s.flush()
			if diff := cmp.Diff(tt.want, s.words); diff != "" {
				t.Errorf("%s in pieces of %d (-want +got):\n%s", tt.name, size, diff)
			}
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add([]byte("There are changes to critical components of the system:\na -> b\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		var s wordScanner
		s.Write(log)
		s.flush()
		if len(s.line) > 0 || len(s.words.LastError) > 3*maxLogLine {
			t.Errorf("kept %d and %d bytes", len(s.line), len(s.words.LastError))
		}
	})
}

// conn plays a connection: each Run gives the next answer.
type conn struct {
	answers []answered
	scripts []string
	reopens []error
	opened  int
}

type answered struct {
	output string
	err    error
}

func (c *conn) Run(_ context.Context, s ssh.Script) error {
	c.scripts = append(c.scripts, s.Text)
	a := c.answers[len(c.scripts)-1]
	for in := []byte(a.output); len(in) > 0; {
		n := min(7, len(in))
		if _, err := s.Output.Write(in[:n]); err != nil {
			return err
		}
		in = in[n:]
	}
	return a.err
}

func (c *conn) Reopen(context.Context) error {
	c.opened++
	if c.opened > len(c.reopens) {
		return nil
	}
	return c.reopens[c.opened-1]
}

var lostLine = &ssh.Error{Kind: ssh.Lost, Doing: "switching", Words: "gone"}

const observation = "observation follows\nuid 0\nboot-id b\nrunning /nix/store/new\nobserved yes\n"

func TestSuperviseGoesOnWhereTheLogStopped(t *testing.T) {
	c := &conn{answers: []answered{
		{"unit u\nlog 10\nfirst\nlin", lostLine},
		{"unit u\nlog 6\ne\nlast", lostLine},
		{"ended yes\nservice-result success\nexit-code exited\nexit-status 0\ntries 1\n" + observation, nil},
	}, reopens: []error{errors.New("refused"), nil, nil}}
	var log bytes.Buffer
	got, err := Supervise(context.Background(), c, Run{ID: "x", Action: Test, Toplevel: "/nix/store/new", Window: time.Minute}, Sink{Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	if log.String() != "first\nline\nlast" {
		t.Errorf("the log came as %q", log.String())
	}
	if got.Reconnects != 2 || !got.Seen || !got.Switch.Ended || got.Switch.ExitStatus != "0" {
		t.Errorf("outcome %+v", got)
	}
	for i, offset := range []string{" 0 ", " 9 ", " 15 "} {
		if again := strings.Contains(c.scripts[i], "for look in"); again != (i > 0) {
			t.Errorf("call %d waits for an earlier session to start the switch: %v", i, again)
		}
		if !strings.Contains(c.scripts[i], `"$unit"`+offset) {
			t.Errorf("call %d does not follow from byte%s", i, offset)
		}
	}
}

func TestSuperviseNeverGuesses(t *testing.T) {
	for name, c := range map[string]*conn{
		"lost and not found again":  {answers: []answered{{"unit u\nended yes\nexit-code exited\nexit-status 0\n", lostLine}}, reopens: make([]error, 0)},
		"an answer without its end": {answers: []answered{{"unit u\nended yes\nexit-code exited\nexit-status 0\nobservation follows\nuid 0\n", nil}}},
		"foreign words":             {answers: []answered{{"unit u\nhello\n" + observation, nil}}},
		"the script failed":         {answers: []answered{{"", &ssh.ExitError{Doing: "switching", Status: 1, Words: "no"}}}},
	} {
		if name == "lost and not found again" {
			for range 1000 {
				c.reopens = append(c.reopens, errors.New("refused"))
			}
		}
		got, err := Supervise(context.Background(), c, Run{ID: "x", Action: Test, Toplevel: "/nix/store/new", Window: 10 * time.Millisecond}, Sink{Log: &bytes.Buffer{}})
		if err == nil || got.Seen {
			t.Errorf("%s: outcome %+v, %v; want an error and nothing seen", name, got, err)
		}
		if v := verdict.Activation(verdict.Activated{Wanted: "/nix/store/new", Switch: got.Switch, After: got.Host.Host, Seen: got.Seen}).Verdict; v.Good() {
			t.Errorf("%s: %s", name, v)
		}
	}
}

func TestSuperviseStopsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := &conn{answers: []answered{{"unit u\n", lostLine}}}
	if got, err := Supervise(ctx, c, Run{ID: "x", Action: Test, Window: time.Minute}, Sink{Log: &bytes.Buffer{}}); err == nil || c.opened != 0 {
		t.Errorf("an interrupted run connected again %d times: %+v, %v", c.opened, got, err)
	}
}

// All scripts are POSIX sh as far as real shells can tell.
func TestScriptsParse(t *testing.T) {
	r := Run{ID: "20260102T030405-0011aabb", Action: Test, Toplevel: "/nix/store/x-nixos", Attempts: 60, Interval: time.Second, Settle: 500 * time.Millisecond}
	boot, dry, confirmed := r, r, r
	boot.Action, dry.Action = Boot, DryActivate
	confirmed.Confirm, confirmed.Old = time.Minute, "/nix/store/y-nixos"
	for _, sh := range tooltest.Shells(t) {
		for i, text := range []string{startScript(r, 0, false), startScript(boot, 0, false), startScript(dry, 0, false), startScript(confirmed, 17, true), attachScript(r, 17),
			confirmScript(true), confirmScript(false), backScript(confirmed, 3), header(r) + facts.Functions + runText, header(r) + endText, backText} {
			cmd := exec.Command(sh, "-n")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: script %d: %v\n%s", sh, i, err, out)
			}
		}
	}
}

func TestQuote(t *testing.T) {
	for _, word := range []string{"", "plain", "it's", "a b", "$x `y` \\ \"", "new\nline", "'''"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("quote(%q) is %q to sh (%v)", word, out, err)
		}
	}
}

// An end that was recorded without a word is no end that was seen.
func TestEmptyResultIsNone(t *testing.T) {
	c := &conn{answers: []answered{{"unit u\nended yes\n" + observation, nil}}}
	got, err := Supervise(context.Background(), c, Run{ID: "x", Action: Test, Toplevel: "/nix/store/new"}, Sink{Log: &bytes.Buffer{}})
	if err != nil || got.Switch.Ended || !got.Switch.Gone {
		t.Errorf("outcome %+v, %v", got, err)
	}
}

// A host that lets in but ends every session at once is given up in time, and not hammered.
func TestSuperviseEndsWithItsWindow(t *testing.T) {
	c := &conn{}
	for range 50 {
		c.answers = append(c.answers, answered{"", lostLine})
	}
	_, err := Supervise(context.Background(), c, Run{ID: "x", Action: Test, Window: 1500 * time.Millisecond}, Sink{Log: &bytes.Buffer{}})
	if err == nil || len(c.scripts) > 5 {
		t.Errorf("%d sessions, error %v", len(c.scripts), err)
	}
}

// Once a run is on the host, an elevation that fails for a moment is no end.
func TestSuperviseGetsOverHiccups(t *testing.T) {
	refused := &ssh.Error{Kind: ssh.ElevationRefused, Doing: "switching", Words: "sudo: not found"}
	c := &conn{answers: []answered{{"unit u\n", lostLine}, {"", refused},
		{"ended yes\nservice-result success\nexit-code exited\nexit-status 0\n" + observation, nil}}}
	got, err := Supervise(context.Background(), c, Run{ID: "x", Action: Test, Window: time.Minute}, Sink{Log: &bytes.Buffer{}})
	if err != nil || !got.Seen {
		t.Errorf("outcome %+v, %v", got, err)
	}
	first := &conn{answers: []answered{{"", refused}}}
	if _, err := Supervise(context.Background(), first, Run{ID: "x", Action: Test, Window: time.Minute}, Sink{Log: &bytes.Buffer{}}); err == nil || first.opened > 0 {
		t.Errorf("an elevation that was refused from the start was tried %d times again (%v)", first.opened, err)
	}
}
