package ssh

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

// privateKey makes a key file with OpenSSH's own program.
func privateKey(t *testing.T, passphrase string) string {
	t.Helper()
	tooltest.Need(t, "ssh-keygen")
	path := filepath.Join(t.TempDir(), "a key")
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", path).CombinedOutput()
	if err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	return path
}

// agent starts an agent for one test and returns its socket.
func agent(t *testing.T, keys ...string) string {
	t.Helper()
	tooltest.Need(t, "ssh-agent")
	dir, err := os.MkdirTemp("/tmp", "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.Command("ssh-agent", "-D", "-a", socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for range 200 {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, key := range keys {
		add := exec.Command("ssh-add", "-q", key)
		// The passphrase comes from a program, as ssh-add has it.
		add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket, "SSH_ASKPASS_REQUIRE=force", "SSH_ASKPASS="+askpass(t))
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("ssh-add: %v: %s", err, out)
		}
	}
	return socket
}

func askpass(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "askpass")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho secret\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckKey(t *testing.T) {
	plain, locked, other := privateKey(t, ""), privateKey(t, "secret"), privateKey(t, "secret")
	held := agent(t, locked)
	open := privateKey(t, "")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, agent, want string
	}{
		{"plain", plain, "", ""},
		{"missing", "/nonexistent/id", "", "the key file /nonexistent/id can't be read: no such file or directory"},
		{"a folder", t.TempDir(), "", "is a directory"},
		{"too open", open, "", "its permissions 0644 are too open"},
		{"garbage", garbage, "", "has no private key that ssh can read"},
		{"a passphrase, no agent", locked, "", "has a passphrase, which nobody is asked for, and there is no agent"},
		{"a passphrase, in the agent", locked, held, ""},
		{"a passphrase, not in the agent", other, held, "the agent does not hold it"},
		{"a passphrase, a dead agent", locked, "/nonexistent/agent", "the agent does not answer"},
		{"a passphrase, no keys in the agent", locked, agent(t), "the agent holds no keys"},
		{"a public key, in the agent", locked + ".pub", held, ""},
		{"a public key, no agent", plain + ".pub", "", "is a public key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := client(t).checkKey(t.Context(), tt.path, tt.agent)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
