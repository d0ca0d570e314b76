package sshworld

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/google/go-cmp/cmp"
)

// The text stands between single quotes on the target's command line.
func TestServeHasNoSingleQuotes(t *testing.T) {
	if strings.Contains(serve, "'") {
		t.Error("serve.sh has a single quote")
	}
}

// A script that goes through one lasting session does what it does alone.
func TestServedIsAsLocal(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", serve)
	said := &child.Tail{Limit: 1 << 10}
	cmd.Stderr = said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &session{cmd: cmd, cancel: func() {}, in: in, out: bufio.NewReader(out), said: said}
	for _, script := range []string{
		"true", "exit 7", "echo a; echo b >&2; exit 255", "printf 'no newline'", "cat", "\n\necho after blank lines\n\n",
		"head -c 300000 /dev/zero | tr '\\0' x", `printf '%s\n' "it's \"quoted\" $HOME"`, "echo 'ended 0 1 2'",
		"echo é", "# " + strings.Repeat("long ", 20000), "exit 3 # again",
	} {
		want, err := local{}.Run(t.Context(), script)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.exchange(script)
		if err != nil {
			t.Fatalf("%.40q: %v", script, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.40q: -local +served\n%s", script, diff)
		}
	}
	if words := s.end(); words != "" {
		t.Errorf("the session said %q", words)
	}
}
