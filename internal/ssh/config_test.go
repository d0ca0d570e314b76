package ssh

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

// effective asks the real ssh what a connection to host would use.
func effective(t *testing.T, config, host string) map[string]string {
	t.Helper()
	cmd := exec.Command("ssh", "-G", "-F", config, "--", host)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ssh -G: %v\n%s", err, stderr.String())
	}
	values := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if values[key] == "" {
			values[key] = value
		}
	}
	return values
}

// client is one whose runs leave nothing behind.
func client(t *testing.T) *Client {
	t.Helper()
	tooltest.Need(t, "ssh")
	dir, err := NewRunDir(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return &Client{Local: child.Local{Env: os.Environ()}, Dir: dir, TempDir: t.TempDir()}
}

// prepared writes the configuration of a node as a run would.
func prepared(t *testing.T, s Settings) *Identity {
	t.Helper()
	id, err := client(t).Prepare(t.Context(), "web1", s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEffectiveConfiguration(t *testing.T) {
	key := privateKey(t, "")
	const pin = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1ZbXpGmEmQxZxXg5sQ1oFyqFz7d3SgQeFhR5V3aB1c"
	for _, tt := range []struct {
		name     string
		settings Settings
		want     map[string]string
	}{
		{"built-in", Settings{Host: "web1", User: "root"}, map[string]string{
			"user": "root", "port": "22", "batchmode": "yes", "compression": "no", "stricthostkeychecking": "accept-new",
			"connecttimeout": "15", "serveraliveinterval": "7", "serveralivecountmax": "3", "controlmaster": "false",
			"globalknownhostsfile": "/dev/null", "updatehostkeys": "false", "identitiesonly": "no",
		}},
		{"options", Settings{Host: "web1", User: "root", Options: []string{"Port=2222", "ConnectTimeout=3", "Compression=no"}}, map[string]string{
			"port": "2222", "connecttimeout": "3", "compression": "no",
		}},
		{"key", Settings{Host: "web1", User: "root", Key: key}, map[string]string{"identitiesonly": "yes"}},
		{"pinned", Settings{Host: "web1", User: "root", HostKeys: []string{pin}}, map[string]string{
			"stricthostkeychecking": "true", "globalknownhostsfile": "/dev/null",
		}},
		{"an option wins over the pin's values", Settings{Host: "web1", User: "root", HostKeys: []string{pin}, Options: []string{"StrictHostKeyChecking=no"}}, map[string]string{
			"stricthostkeychecking": "false",
		}},
		{"client configuration", Settings{Host: "web1", User: "root", ClientConfig: write(t, "Host web1\n  Port 2202\n  User other\n  RequestTTY force\n  LogLevel QUIET\n  ControlMaster auto\n")}, map[string]string{
			"port": "2202", "user": "root", "requesttty": "false", "loglevel": "INFO", "controlmaster": "false",
		}},
		{"an option wins over the client configuration", Settings{Host: "web1", User: "root", Options: []string{"Port=2201"}, ClientConfig: write(t, "Port 2202\n")}, map[string]string{
			"port": "2201",
		}},
		{"the client configuration's trust wins", Settings{Host: "web1", User: "root", HostKeys: []string{pin}, ClientConfig: write(t, "StrictHostKeyChecking no\n")}, map[string]string{
			"stricthostkeychecking": "false",
		}},
		{"IPv6 with a zone", Settings{Host: "fe80::1%lo", User: "root", Options: []string{"Port=2222"}}, map[string]string{"hostname": "fe80::1%lo", "port": "2222"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := prepared(t, tt.settings)
			got := effective(t, id.file("config"), tt.settings.Host)
			for key, want := range tt.want {
				if got[key] != want {
					t.Errorf("%s = %q, want %q", key, got[key], want)
				}
			}
			if path := got["controlpath"]; path != id.files.controlPath || len(path) > 90 {
				t.Errorf("controlpath = %q (%d bytes), want %q of at most 90", path, len(path), id.files.controlPath)
			}
		})
	}
}

// What rides on the master can't dial, whatever is configured elsewhere.
func TestRiderDoesNotDial(t *testing.T) {
	id := prepared(t, Settings{Host: "web1", User: "root"})
	got := effective(t, id.file("rider"), riderHost)
	if got["proxycommand"] != "false" || got["controlpath"] != id.files.controlPath || got["controlmaster"] != "false" {
		t.Errorf("rider: proxycommand %q, controlpath %q, controlmaster %q", got["proxycommand"], got["controlpath"], got["controlmaster"])
	}
}

func TestRunDir(t *testing.T) {
	// A long or odd TMPDIR is passed over; ssh could not use it.
	odd := filepath.Join(t.TempDir(), "with space "+strings.Repeat("x", 150))
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("/tmp", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	env := map[string]string{"TMPDIR": odd, "XDG_RUNTIME_DIR": base}
	first, err := NewRunDir(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(first.Path) != base {
		t.Errorf("the run's directory is %s, want one in %s", first.Path, base)
	}
	if info, err := os.Stat(first.Path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the run's directory: %v, %v; want mode 0700", info, err)
	}
	// A dead run's directory: made, and its lock free.
	dead := filepath.Join(base, runDirPrefix+"dead")
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := NewRunDir(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("the directory of a dead run is still there")
	}
	if _, err := os.Stat(first.Path); err != nil {
		t.Errorf("the directory of a living run is gone: %v", err)
	}
	for _, d := range []*RunDir{first, second, second} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(base, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Runs that begin at the same moment don't sweep each other away.
func TestRunDirsAtOnce(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				d, err := NewRunDir(func(string) string { return base })
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := d.Write("file", "text"); err != nil {
					t.Error(err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestClassify(t *testing.T) {
	// The texts are OpenSSH's; the scenarios meet the real ones.
	for _, tt := range []struct {
		words string
		want  Kind
	}{
		{"ssh: connect to host web1 port 22: Connection refused", Unreachable},
		{"ssh: Could not resolve hostname web9: Name or service not known", Unreachable},
		{"kex_exchange_identification: Connection closed by remote host", Unreachable},
		{"root@web1: Permission denied (publickey).", LoginRefused},
		{"Received disconnect from 10.0.0.2 port 22:2: Too many authentication failures", LoginRefused},
		{"No ED25519 host key is known for web1 and you have requested strict checking.\nHost key verification failed.", HostKeyRefused},
		{"@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed.", HostKeyRefused},
		// A hop's key is refused before the node is ever asked for a login.
		{"Host key verification failed.\nConnection closed by UNKNOWN port 65535", HostKeyRefused},
		{"", Unreachable},
	} {
		if got := classify(tt.words); got != tt.want {
			t.Errorf("classify(%q) = %d, want %d", tt.words, got, tt.want)
		}
	}
}

// A keepalive that somebody has turned off is said, since then a dead line can't be noticed.
func TestKeepaliveOffIsSaid(t *testing.T) {
	for options, want := range map[string]bool{"ServerAliveInterval=0": true, "ServerAliveInterval=5": false} {
		id := prepared(t, Settings{Host: "web1", User: "root", Options: []string{options}})
		if said := strings.Contains(strings.Join(id.Notes, "\n"), "keepalive is off"); said != want {
			t.Errorf("%s: notes %q", options, id.Notes)
		}
	}
}
