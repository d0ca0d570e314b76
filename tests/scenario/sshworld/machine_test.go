package sshworld

import (
	"context"
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
	ctx, cancel := context.WithCancel(t.Context())
	s, err := begin(exec.CommandContext(ctx, "/bin/sh", "-c", serve), cancel, &child.Tail{Limit: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
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

// A session that is lost under a script is an error, and known to be over.
func TestLostSession(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := begin(exec.CommandContext(ctx, "/bin/sh", "-c", serve), cancel, &child.Tail{Limit: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	if _, err := s.exchange("true"); err != nil || s.ended() {
		t.Errorf("a session that goes on: over %v, %v", s.ended(), err)
	}
	if _, err := s.exchange("kill -KILL $PPID"); err == nil {
		t.Error("a script whose session was lost is no error")
	}
	<-s.over
	if !s.ended() {
		t.Error("the session is not known to be over")
	}
}
