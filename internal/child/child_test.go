package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var local = Local{Env: []string{"PATH=/usr/bin:/bin", "SSH_ASKPASS=/bin/false"}}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name, script, stdout, err string
		code                      int
	}{
		{name: "good", script: "echo out; echo err >&2", stdout: "out\n"},
		{name: "the child's own words", script: "echo 'error: no such thing' >&2; exit 3", err: "sh: error: no such thing", code: 3},
		{name: "no words", script: "exit 7", err: "sh: exit status 7", code: 7},
		{name: "killed", script: "kill -KILL $$", err: "sh: signal: killed", code: -1},
		{name: "nobody is asked", script: `printf '%s %s' "$SSH_ASKPASS" "$GIT_TERMINAL_PROMPT"; cat`, stdout: " 0"},
		{name: "no terminal", script: "echo x >/dev/tty", err: "/dev/tty", code: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := local.Run(t.Context(), Command{Name: "sh", Args: []string{"-c", tt.script}})
			if string(got.Stdout) != tt.stdout {
				t.Errorf("standard output %q, want %q", got.Stdout, tt.stdout)
			}
			var failed *Error
			switch {
			case tt.err == "" && err != nil:
				t.Error(err)
			case tt.err != "" && !errors.As(err, &failed):
				t.Errorf("error %v, want one with %q", err, tt.err)
			case tt.err != "" && (!strings.Contains(err.Error(), tt.err) || failed.ExitCode != tt.code):
				t.Errorf("error %q, code %d, want %q, %d", err, failed.ExitCode, tt.err, tt.code)
			}
		})
	}
}

func TestNotFound(t *testing.T) {
	for _, env := range [][]string{{"PATH=/nowhere"}, {"PATH="}, nil, {"PATH=."}} {
		_, err := Local{Env: env, Dir: "/bin"}.Run(t.Context(), Command{Name: "sh"})
		if !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("with %q: %v, want a program that is not found", env, err)
		}
	}
}

// A cancelled child and its own children are gone, and the cause is named.
func TestCancel(t *testing.T) {
	reason := errors.New("building took longer than 1s")
	ctx, cancel := context.WithCancelCause(t.Context())
	pids := filepath.Join(t.TempDir(), "pids")
	go func() {
		for range 500 {
			if text, _ := os.ReadFile(pids); bytes.Count(text, []byte("\n")) == 2 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel(reason)
	}()
	_, err := local.Run(ctx, Command{Name: "sh", Args: []string{"-c", fmt.Sprintf("echo $$ >>%[1]s; sh -c 'echo $$ >>%[1]s; sleep 100; :'; :", pids)}})
	if !errors.Is(err, reason) {
		t.Errorf("error %v, want %v", err, reason)
	}
	text, _ := os.ReadFile(pids)
	for _, pid := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		gone := false
		for range 100 {
			// One that only waits to be reaped by the machine's init is gone too.
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
			if gone = err != nil || strings.Contains(string(stat), ") Z "); gone {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !gone {
			t.Errorf("process %d is still there", n)
		}
	}
}

func TestTail(t *testing.T) {
	tail := &Tail{Limit: 4}
	for _, piece := range []string{"ab", "cdefgh", "", "ij"} {
		if n, err := tail.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := string(tail.Bytes()); got != "ghij" {
		t.Errorf("kept %q, want ghij", got)
	}
}
