package ssh

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

// hostShells are the shells that a host has as /bin/sh; mksh, which none has, would
// run its own echo in the place of the program.
func hostShells(t *testing.T) []string {
	return slices.DeleteFunc(tooltest.Shells(t), func(sh string) bool { return sh == "mksh" })
}

// commanded runs a wrapped command in a shell, as sshd would: as the leader of a
// session of its own. hangUp, if not nil, is called with what ends the line.
func commanded(t *testing.T, sh, text string, hangUp func(end func())) (stdout, stderr string, out, errs *frame) {
	t.Helper()
	in, line, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	end := func() { _ = line.Close() }
	defer end()
	var body, words bytes.Buffer
	out, errs = newFrame(marker, &body), newFrame(marker, &words)
	cmd := exec.Command(sh)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(line, text); err != nil {
		t.Fatal(err)
	}
	if hangUp != nil {
		hangUp(end)
	}
	_ = cmd.Wait()
	return body.String(), words.String(), out, errs
}

// Arguments arrive byte for byte, the two streams apart, the exit status with both.
func TestWrapCommand(t *testing.T) {
	var bytes []byte
	for b := 1; b < 256; b++ {
		bytes = append(bytes, byte(b))
	}
	odd := []string{"", " a  b ", "'", `"`, `\`, "\n", "$HOME `id` $(id)", "*", "-n", "--", "a=b", "~", string(bytes), strings.Repeat("x", 100_000)}
	for _, sh := range hostShells(t) {
		for _, tt := range []struct {
			name           string
			args           []string
			stdout, stderr string
			status         int
		}{
			{"words", append([]string{"printf", `%s\0`}, odd...), strings.Join(odd, "\x00") + "\x00", "", 0},
			{"both streams", []string{"sh", "-c", "echo out; echo err >&2; exit 3"}, "out\n", "err\n", 3},
			{"no shell's own words", []string{"echo", `a\tb`}, `a\tb` + "\n", "", 0},
			{"an empty input", []string{"cat"}, "", "", 0},
			{"like a frame", []string{"printf", "\n" + marker + " en"}, "\n" + marker + " en", "", 0},
			{"killed", []string{"sh", "-c", "kill -KILL $$"}, "", "", 137},
			{"ended with all that is its own", []string{"sh", "-c", "kill -TERM 0; sleep 10"}, "", "", 143},
			{"signals are as they should be", []string{"sh", "-c", "kill -INT $$; echo ignored"}, "", "", 130},
			{"no fifth wheel", []string{"sh", "-c", "for fd in 3 4 5; do [ ! -e /proc/self/fd/$fd ] || echo $fd; done"}, "", "", 0},
		} {
			stdout, stderr, out, errs := commanded(t, sh, wrapCommand(marker, tt.args), nil)
			if diff := cmp.Diff([]any{tt.stdout, tt.stderr, true, tt.status, true}, []any{stdout, stderr, out.ended, out.status, errs.ended}); diff != "" {
				t.Errorf("%s in %s (-want +got):\n%s", tt.name, sh, diff)
			}
		}
		_, stderr, out, _ := commanded(t, sh, wrapCommand(marker, []string{"no-such-program", "x"}), nil)
		if out.status != 127 || !strings.Contains(stderr, "no-such-program") {
			t.Errorf("%s: a missing program: status %d, %q", sh, out.status, stderr)
		}
		whole := wrapCommand(marker, []string{"printf", "done"})
		for n := 0; n < len(whole)-2; n += 7 {
			if stdout, _, out, _ := commanded(t, sh, whole[:n], func(end func()) { end() }); stdout != "" || out.begun {
				t.Fatalf("%s: a script cut after %d of %d bytes ran: %q", sh, n, len(whole), stdout)
			}
		}
	}
}

// Where the line ends, what the command has started ends with it.
func TestCommandEndsWithItsLine(t *testing.T) {
	for _, sh := range hostShells(t) {
		started := t.TempDir() + "/pid"
		var pid string
		stdout, _, _, _ := commanded(t, sh, wrapCommand(marker, []string{"sh", "-c", `sh -c 'echo $$ >"$1".new && mv "$1".new "$1"; sleep 1000; :' sh "$1"; echo on`, "sh", started}), func(end func()) {
			for range 1000 {
				time.Sleep(10 * time.Millisecond)
				if text, err := os.ReadFile(started); err == nil {
					pid = strings.TrimSpace(string(text))
					break
				}
			}
			end()
		})
		if strings.Contains(stdout, "on") {
			t.Errorf("%s: the command went on", sh)
		}
		gone := false
		for range 500 {
			// One that only waits to be reaped by the machine's init is gone too.
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if gone = err != nil || strings.Contains(string(stat), ") Z "); gone {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !gone {
			t.Errorf("%s: process %s of the command still runs", sh, pid)
		}
	}
}
