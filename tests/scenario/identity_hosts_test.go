package scenario_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
)

// Addresses of every kind work for commands and for the copy (case 3).
func addresses(t *testing.T, w *identities) {
	d := w.rig.Deployer
	relay, err := w.rig.Relay(t.Context(), w.web1, 2201, rig.LinkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	linkLocal := strings.TrimSpace(w.sh(t, w.web1, "ip -6 -o addr show dev eth0 scope link | sed -n 's/.*inet6 \\([^/]*\\).*/\\1/p'"))
	w.write(t, d, "/root/.ssh/config", "Host short\n    HostName web1\n    Port 2201\n", 0o600)
	long := "/root/" + strings.Repeat("x", 150)
	w.sh(t, d, "mkdir -p "+long)
	for i, tt := range []struct{ name, host, port, tmp string }{
		{"IPv4", w.web1.Addr, "2201", ""},
		{"IPv6", w.web1.Addr6, "2201", ""},
		{"IPv6 in brackets", "[" + w.web1.Addr6 + "]", "2201", ""},
		{"IPv6 with a zone", linkLocal + "%eth0", "2201", ""},
		{"localhost", "localhost", fmt.Sprint(relay.Port), ""},
		{"alias", "short", "", ""},
		{"upper case", "WEB1", "2201", ""},
		{"a long TMPDIR", "web1", "2201", long},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entry := fmt.Sprintf(`"host": %q`, tt.host)
			if tt.port != "" {
				entry += fmt.Sprintf(`, "options": ["Port=%s"]`, tt.port)
			}
			w.write(t, d, "/root/settings.json", `{"nodes": {"web1": {`+entry+`}}}`, 0o600)
			env := `DEPLOY_SSH_NODES="$(cat /root/settings.json)"`
			if tt.tmp != "" {
				env += " TMPDIR=" + tt.tmp
			}
			o := w.program(t, env, "'.#'"+fresh(7+i)+" --goal push --json")
			if o.Code != 0 || !strings.Contains(o.Stdout, `"verdict":"staged"`) {
				t.Errorf("exit code %d\n%s%s", o.Code, o.Stdout, o.Stderr)
			}
			w.sh(t, w.web1, fmt.Sprintf("nix-store --check-validity $(echo /nix/store/*-new-%d-*)", 7+i))
		})
	}
}

// Login names with characters that mean something to somebody on the way. The setting
// refuses most of them, an option is written as ssh_config has it.
func users(t *testing.T, w *identities) {
	// Since OpenSSH 10 a % in User is expanded.
	percent := "User=5" + strings.TrimSpace(w.sh(t, w.rig.Deployer, "case $(ssh -G -F none -o User=%% x | grep '^user ') in 'user %') echo 0%%;; *) echo 0%; esac"))
	names := map[string]string{
		"a.b@c": "User=a.b@c", "a b": `User="a b"`, "50%": percent, "h#1": "User=h#1", "u.x~+z": "",
	}
	var passwd strings.Builder
	for name := range names {
		fmt.Fprintf(&passwd, "%s:x:0:0::/root:/bin/bash\n", name)
	}
	w.write(t, w.web1, "/root/passwd.more", passwd.String(), 0o644)
	w.sh(t, w.web1, "cd /etc; cp -p passwd shadow /root; cat /root/passwd.more >>passwd; sed 's/:.*/:*:20000::::::/' /root/passwd.more >>shadow")
	defer w.sh(t, w.web1, "cp -p /root/passwd /root/shadow /etc")
	for name, option := range names {
		t.Run(name, func(t *testing.T) {
			since := w.now(t, w.web1)
			settings := options("web1", "Port=2201", option)
			if option == "" {
				settings = fmt.Sprintf(`{"nodes": {"web1": {"user": %q, "options": ["Port=2201"]}}}`, name)
			}
			o := w.deploy(t, "web1", settings)
			if v := o.results["web1"].Verdict; v != verdict.Unchanged && v != verdict.Switched {
				t.Errorf("%s: %s\n%s", o.results["web1"].Verdict, o.results["web1"].Reason, o.Stderr)
			}
			w.write(t, w.web1, "/root/words", "Accepted publickey for "+name+" from\n", 0o600)
			if n := strings.TrimSpace(w.sh(t, w.web1, "journalctl --sync; journalctl -a --since @"+since+" -o cat | grep -cFf /root/words; true")); n != "1" {
				t.Errorf("sshd saw %s logins as %q", n, name)
			}
		})
	}
}

// Certificates, authorities and revocations are decided as plain ssh decides, with
// the same files (case 5).
func certificates(t *testing.T, w *identities) {
	d := w.rig.Deployer
	ca := strings.TrimSpace(w.sh(t, d, "cd /root; rm -f ca*; ssh-keygen -q -t ed25519 -N '' -f ca && cat ca.pub"))
	sign := func(name, principals, validity string) int {
		w.write(t, d, "/root/sign/"+name+".pub", w.key1+"\n", 0o644)
		w.sh(t, d, fmt.Sprintf("cd /root/sign && ssh-keygen -q -s /root/ca -I %s -h -n %s -V %s %s.pub", name, principals, validity, name))
		w.write(t, w.web1, "/root/"+name+"-cert.pub", w.sh(t, d, "cat /root/sign/"+name+"-cert.pub"), 0o644)
		return w.ownSSHD(t, w.web1, "HostKey /etc/ssh/ssh_host_ed25519_key\nHostCertificate /root/"+name+"-cert.pub\n")
	}
	good := sign("good", "web1,127.0.0.1", "-1d:+1d")
	expired := sign("expired", "web1", "20200101:20200102")
	stranger := sign("stranger", "web9", "-1d:+1d")
	for _, tt := range []struct {
		name, a, b, c string
		port          int
		login         bool
	}{
		{"trusted", "", "", "@cert-authority * " + ca, good, true},
		{"garbage first", "garbage\n", "", "@cert-authority * " + ca, good, true},
		{"expired", "", "", "@cert-authority * " + ca, expired, false},
		{"another principal", "", "", "@cert-authority * " + ca, stranger, false},
		{"revoked", "@revoked * " + ca, "", "@cert-authority * " + ca, good, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, text := range map[string]string{"a": tt.a, "b": tt.b, "c": tt.c} {
				w.write(t, d, "/root/known-"+name, text+"\n", 0o600)
			}
			w.write(t, d, "/root/client.conf", fmt.Sprintf("Host web1\n    Port %d\n    StrictHostKeyChecking yes\n    UserKnownHostsFile /root/known-a /root/known-b /root/known-c\n", tt.port), 0o600)
			plain, err := d.Run(t.Context(), rig.Cmd{Args: []string{"/usr/bin/ssh", "-F", "/root/client.conf", "-o", "BatchMode=yes", "web1", "true"}})
			if err != nil {
				t.Fatal(err)
			}
			if (plain.Code == 0) != tt.login {
				t.Fatalf("plain ssh: exit code %d, want a login: %v\n%s", plain.Code, tt.login, plain.Stderr)
			}
			o := w.deploy(t, "web1", "", "-F /root/client.conf")
			if got := o.results["web1"]; tt.login && got.Verdict != verdict.Unchanged || !tt.login && got.Verdict != verdict.HostKeyRefused {
				t.Errorf("%s: %s; plain ssh logs in: %v", got.Verdict, got.Reason, tt.login)
			}
		})
	}
}

// What a login prints before our script has a say (cases 8 and 9).
func noise(t *testing.T, w *identities) {
	const run = `exec sh -c "$SSH_ORIGINAL_COMMAND"`
	w.write(t, w.web1, "/root/welcome", "#!/bin/sh\necho Welcome to web1\n"+run+"\n", 0o755)
	w.write(t, w.web1, "/root/locale", "#!/bin/sh\nfor i in $(seq 40); do echo \"bash: warning: setlocale: LC_ALL: cannot change locale ($i)\"; done\n"+run+"\n", 0o755)
	w.write(t, w.web1, "/root/returns", "#!/bin/bash\nset -o pipefail; bash -c \"$SSH_ORIGINAL_COMMAND\" | sed -u 's/$/\\r/'\n", 0o755)
	w.write(t, w.web1, "/root/banner", "Authorised users only\n", 0o644)
	w.write(t, w.web1, "/root/barred", "#!/bin/sh\necho This account is currently not available.\nexit 1\n", 0o755)
	w.write(t, w.web1, "/root/picky", `#!/bin/sh
case $SSH_ORIGINAL_COMMAND in *[a-zA-Z]=[!\ ]*|*'${'*|*'$('*|*'&&'*) echo "fish: Unsupported use of '='" >&2; exit 127 ;; esac
`+run+"\n", 0o755)
	w.write(t, w.web1, "/root/bare", "#!/bin/sh\nPATH=/nonexistent\nexport PATH\nexec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n", 0o755)
	for _, tt := range []struct {
		name, sshd, env string
		want            verdict.Verdict
		reason          string
	}{
		{"a greeting", "ForceCommand /root/welcome\n", "", verdict.Unusable, `"Welcome to web1"`},
		{"locale warnings", "ForceCommand /root/locale\n", "", verdict.Unusable, "cannot change locale (1)"},
		{"a banner", "Banner /root/banner\n", "", verdict.Unchanged, ""},
		{"carriage returns", "ForceCommand /root/returns\n", "", verdict.Unusable, "line ends"},
		{"no login", "ForceCommand /root/barred\n", "", verdict.Unusable, "This account is currently not available."},
		{"a shell that is no sh", "ForceCommand /root/picky\n", "", verdict.Unchanged, ""},
		{"an empty PATH", "ForceCommand /root/bare\n", "", verdict.Unchanged, ""},
		{"no local shell", "", "SHELL=/nonexistent", verdict.Unchanged, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port := w.ownSSHD(t, w.web1, tt.sshd)
			w.write(t, w.rig.Deployer, "/root/settings.json", options("web1", fmt.Sprintf("Port=%d", port)), 0o600)
			o := w.program(t, tt.env+` DEPLOY_SSH_NODES="$(cat /root/settings.json)"`, ".#web1 --json")
			if !strings.Contains(o.Stdout, fmt.Sprintf(`"verdict":%q`, tt.want)) || tt.reason != "" && !strings.Contains(o.Stdout, strings.ReplaceAll(tt.reason, `"`, `\"`)) {
				t.Errorf("want %s with %q:\n%s%s", tt.want, tt.reason, o.Stdout, o.Stderr)
			}
		})
	}
}

// Whatever root's login shell is, and with no PATH to speak of, a deploy goes through.
func loginShells(t *testing.T, w *identities) {
	defer w.sh(t, w.web1, "usermod -s /bin/bash root")
	port := w.ownSSHD(t, w.web1, "SetEnv PATH=/nonexistent\n")
	for i, shell := range []string{"bash", "fish", "zsh", "tcsh", "mksh"} {
		t.Run(shell, func(t *testing.T) {
			w.sh(t, w.web1, "usermod -s $(command -v "+shell+") root")
			want, flags := verdict.Staged, "--goal push"
			if shell == "fish" {
				want, flags = verdict.Switched, ""
			}
			w.deploy(t, fresh(15+i), options("web1", fmt.Sprintf("Port=%d", port)), flags).want(t, "web1", want)
		})
	}
}

// Four ways to hang (case 10): each ends with the step's name or passes, and the
// node after it is deployed.
func waits(t *testing.T, w *identities) {
	silent := w.silent(t, w.web1)
	asleep := w.ownSSHD(t, w.web1, "ForceCommand sleep 100\n")
	late := w.ownSSHD(t, w.web2, "ForceCommand sleep 11; exec sh -c \"$SSH_ORIGINAL_COMMAND\"\n")
	both := func(port int) string {
		return fmt.Sprintf(`{"nodes": {"web1": {"options": ["Port=%d"]}, "web2": {"options": ["Port=2202"]}}}`, port)
	}
	t.Run("a port that never speaks", func(t *testing.T) {
		o := w.deploy(t, "both", both(silent), "--connect-timeout 2s")
		o.want(t, "web1", verdict.Unreachable, "connecting to web1", "timed out")
		o.want(t, "web2", verdict.Unchanged)
	})
	t.Run("a command that never answers", func(t *testing.T) {
		o := w.deploy(t, "both", both(asleep), "--command-timeout 2s")
		o.want(t, "web1", verdict.Unreachable, "reading the host's state: no answer within 2s")
		o.want(t, "web2", verdict.Unchanged)
	})
	t.Run("a login that is slow", func(t *testing.T) {
		o := w.deploy(t, "web2", options("web2", fmt.Sprintf("Port=%d", late)))
		o.want(t, "web2", verdict.Unchanged)
		o.noted(t, "web2", "slow login: 1")
	})
	t.Run("a host frozen in the copy", func(t *testing.T) {
		// A slow line, so that there is a middle of the copy.
		relay, err := w.rig.Relay(t.Context(), w.web2, 2202, rig.LinkSpec{BytesPerSecond: 200_000})
		if err != nil {
			t.Fatal(err)
		}
		defer relay.Close()
		frozen := make(chan error, 1)
		go func() {
			for relay.Sent() < 500_000 && t.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			_, err := w.web2.Sh(t.Context(), "pkill -STOP -f '^sshd'")
			frozen <- err
		}()
		o := w.deploy(t, "big", options("web2", "HostName=127.0.0.1", fmt.Sprintf("Port=%d", relay.Port)), "--keepalive-timeout 4s --connect-timeout 2s")
		if err := <-frozen; err != nil {
			t.Error(err)
		}
		w.sh(t, w.web2, "pkill -f '^sshd(-session)?: root'; pkill -CONT -f '^sshd'; true")
		// The keepalive noticed, and the copy was not taken up again by a host that is frozen.
		o.want(t, "web2", verdict.CopyFailed, "connecting again")
	})
}
