package ssh

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

// shells are those that a host's sh may be.
var shells = []string{"dash", "bash"}

func TestAttended(t *testing.T) {
	for _, shell := range shells {
		for _, tt := range []struct {
			name, patience, script string
			// deployer is what the one that waits does.
			deployer func(io.WriteCloser)
			want     string
		}{
			{"command ends", "60", "attended sh -c 'echo here; exit 3'; echo status $?; echo last", nil, "here\nstatus 3\nlast\n"},
			{"line cut", "60", "attended sleep 60; echo status $?", func(in io.WriteCloser) { _ = in.Close() }, "status 143\n"},
			{"line frozen", "1", "attended sleep 60; echo status $?", nil, "status 143\n"},
			{"signs of life", "2", "attended sleep 4; echo status $?", func(in io.WriteCloser) {
				for range 12 {
					_, _ = io.WriteString(in, ".\n")
					time.Sleep(400 * time.Millisecond)
				}
			}, "status 0\n"},
			{"deaf command", "1", "attended sh -c 'trap \"\" TERM; exec sleep 30'; echo status $?", nil, "status 137\n"},
		} {
			t.Run(shell+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				tooltest.Need(t, shell, "timeout")
				cmd := exec.CommandContext(t.Context(), shell)
				var out bytes.Buffer
				cmd.Stdout = &out
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(in, wrap(marker, "patience="+tt.patience+"\n"+attendedFunction+tt.script, "3<&0 ")); err != nil {
					t.Fatal(err)
				}
				if tt.deployer != nil {
					tt.deployer(in)
				}
				if err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(out.String(), " begin\n"+tt.want) {
					t.Errorf("said %q, want %q", out.String(), tt.want)
				}
			})
		}
	}
}

// What a script reads ends with it, also when nobody has read it.
func TestAttend(t *testing.T) {
	r, err := attend("hello\n"+strings.Repeat("x", 1<<20), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("read %q, %v", line, err)
	}
	_ = r.Close()

	r, err = attend("", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != ".\n" {
		t.Errorf("read %q, %v; want a sign of life", line, err)
	}
	_ = r.Close()
}
