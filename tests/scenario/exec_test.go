package scenario_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// The nodes' systems can't be evaluated: a command has no need of them.
const execFlake = `{
  outputs = { self }:
    let
      node = name: { inherit name; host = name; toplevel = throw "nobody asks for a system"; };
      web1 = node "web1";
      web2 = node "web2";
    in {
      nodes = [ web1 web2 ];
      closed = [ web1 (node "closed" // { host = "web1"; ssh.options = [ "Port=1" ]; }) web2 ];
      stranger = [ (web1 // { expect.hostName = "web9"; }) web2 ];
      twins = [ web1 (node "again" // { host = "web1"; }) ];
      pinned = [ web1 (web2 // { ssh.hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKHEMgDwFBvLmUvRhZzRLQ3YcWYvVMZ4V9z0hLJXcPnY"; }) ];
      user = { defaults.ssh.user = "oper"; defaults.elevate = "sudo"; nodes = [ web1 ]; };
      plain = { defaults.ssh.user = "oper"; nodes = [ web1 ]; };
    };
}
`

// Commands on two hosts.
func TestExec(t *testing.T) {
	t.Parallel()
	r := rig.Start(t, rig.Config{Targets: []rig.Target{rigworld.Target("web1", 22), rigworld.Target("web2", 22)}})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), execFlake); err != nil {
		t.Fatal(err)
	}
	web1 := r.Host("web1")
	if _, err := web1.Sh(ctx, "useradd -m oper && install -d -o oper -m 700 /home/oper/.ssh && install -o oper -m 600 /root/.ssh/authorized_keys /home/oper/.ssh/ && echo 'oper ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/oper"); err != nil {
		t.Fatal(err)
	}
	call := func(t *testing.T, code int, command string) (stdout, stderr string) {
		t.Helper()
		result, err := r.Deployer.Run(ctx, rig.Cmd{Args: []string{"/bin/bash", "-c", command}, Dir: rigworld.Flake})
		if err != nil {
			t.Fatal(err)
		}
		if result.Code != code {
			t.Errorf("%s: exit code %d, want %d\n%s%s", command, result.Code, code, result.Stdout, result.Stderr)
		}
		if strings.ContainsRune(result.Stdout+result.Stderr, '\x1b') {
			t.Errorf("%s: an escape code in the output", command)
		}
		return result.Stdout, result.Stderr
	}
	records := func(t *testing.T, code int, command string) (all []report.Record) {
		t.Helper()
		out, _ := call(t, code, command)
		for line := range strings.Lines(out) {
			var r report.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			all = append(all, r)
		}
		return all
	}
	ends := func(all []report.Record) map[string]string {
		got := map[string]string{}
		for _, r := range all {
			if r.Exec != nil {
				got[r.Exec.Node], _, _ = strings.Cut(r.Exec.Ending(), ":")
			}
		}
		return got
	}
	want := func(t *testing.T, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}

	t.Run("in list order, each stream on its own", func(t *testing.T) {
		out, errs := call(t, 0, `deploy-ssh exec .#nodes -- sh -c 'uname -n; echo "to err" >&2; printf "\033[31mred"'`)
		want(t, out, "web1 | web1\nweb1 | \\x1b[31mred\nweb2 | web2\nweb2 | \\x1b[31mred\n")
		if !strings.Contains(errs, "web1 | to err\n") || !strings.Contains(errs, "2 nodes exited 0") {
			t.Errorf("standard error:\n%s", errs)
		}
	})
	t.Run("statuses, failures and the order of the summary", func(t *testing.T) {
		all := records(t, 1, `deploy-ssh exec .#closed -p 3 --json --connect-timeout 2s -- sh -c '[ $(uname -n) = web1 ]'`)
		want(t, ends(all), map[string]string{"web1": "exit status 0", "closed": "unreachable", "web2": "exit status 1"})
		want(t, all[len(all)-1].Summary.Failed, []string{"closed", "web2"})
	})
	t.Run("the same rules of identity", func(t *testing.T) {
		want(t, ends(records(t, 1, `deploy-ssh exec .#stranger --json -- touch /root/touched`)), map[string]string{"web1": "wrong-host", "web2": "exit status 0"})
		want(t, ends(records(t, 1, `deploy-ssh exec .#twins --json -- true`)), map[string]string{"web1": "exit status 0", "again": "wrong-host"})
		want(t, ends(records(t, 1, `deploy-ssh exec .#pinned --json -- touch /root/pinned`)), map[string]string{"web1": "exit status 0", "web2": "host-key-refused"})
		want(t, ends(records(t, 1, `deploy-ssh exec .#nodes --on web1 --require-pins --json -- touch /root/touched`)), map[string]string{"web1": "unpinned"})
		for host, file := range map[string]string{"web1": "/root/touched", "web2": "/root/pinned"} {
			if _, err := r.Host(host).Sh(ctx, "[ ! -e "+file+" ]"); err != nil {
				t.Errorf("the command ran on %s all the same", host)
			}
		}
	})
	t.Run("the login user, unless root is asked for", func(t *testing.T) {
		out, _ := call(t, 0, `deploy-ssh exec .#user -- id -un; deploy-ssh exec .#user --root -- id -un`)
		want(t, out, "web1 | oper\nweb1 | root\n")
		want(t, ends(records(t, 1, `deploy-ssh exec .#plain --root --json -- id -un`)), map[string]string{"web1": "elevation-refused"})
	})
	t.Run("arguments through any login shell", func(t *testing.T) {
		defer func() { _, _ = web1.Sh(ctx, "usermod -s /bin/bash oper") }()
		for _, shell := range []string{"bash", "fish", "tcsh", "zsh", "mksh"} {
			if _, err := web1.Sh(ctx, "usermod -s $(command -v "+shell+") oper"); err != nil {
				t.Fatal(err)
			}
			for _, root := range []string{"", "--root"} {
				if root != "" && shell != "fish" {
					continue // sudo's shell is the same for all
				}
				out, _ := call(t, 0, `deploy-ssh exec .#user `+root+` -- printf '<%s>\n' '' 'a  b' "it's" '"$HOME"' '\' '*' '!x' '-n' '%s' ü`)
				want(t, out, strings.ReplaceAll("web1 | <>,web1 | <a  b>,web1 | <it's>,web1 | <\"$HOME\">,web1 | <\\>,web1 | <*>,web1 | <!x>,web1 | <-n>,web1 | <%s>,web1 | <ü>,", ",", "\n"))
			}
		}
	})
	t.Run("much output, and no text", func(t *testing.T) {
		length := 0
		for _, r := range records(t, 0, `deploy-ssh exec .#nodes --on web1 --json -- sh -c 'head -c 1000000 /dev/zero | tr "\0" x'`) {
			if r.Output != nil {
				length += len(r.Output.Text)
			}
		}
		want(t, length, 1000000)
		var got []byte
		for _, r := range records(t, 0, `deploy-ssh exec .#nodes --on web1 --json -- printf '\377\376\nend'`) {
			if r.Output != nil {
				got = append(append(got, r.Output.Bytes...), r.Output.Text...)
			}
		}
		want(t, got, []byte("\xff\xfeend"))
	})
	t.Run("what the command leaves behind keeps nobody", func(t *testing.T) {
		out, _ := call(t, 0, `deploy-ssh exec .#nodes --on web1 --timeout 60s -- sh -c 'sleep 300 & echo $!'`)
		if _, err := web1.Sh(ctx, "kill "+strings.TrimPrefix(strings.TrimSpace(out), "web1 | ")); err != nil {
			t.Errorf("what was left behind is gone: %v", err)
		}
	})
	gone := func(t *testing.T, mark string) {
		t.Helper()
		if _, err := web1.Sh(ctx, "for i in $(seq 100); do pgrep -f '^sleep "+mark+"$' >/dev/null || exit 0; sleep 0.1; done; exit 1"); err != nil {
			t.Errorf("the command still runs: %v", err)
		}
	}
	t.Run("too long, and the host ends it", func(t *testing.T) {
		_, errs := call(t, 1, `deploy-ssh exec .#nodes --on web1 --timeout 1s -- sh -c 'sleep 1001; :'`)
		if !strings.Contains(errs, "web1: timed-out: running the command: it did not end within 1s") {
			t.Errorf("the step is not named:\n%s", errs)
		}
		gone(t, "1001")
	})
	t.Run("interrupted, and the host ends it", func(t *testing.T) {
		_, errs := call(t, 130, `env --default-signal=INT deploy-ssh exec .#nodes -v -- sh -c 'echo here; sleep 1002; :' >/root/out & pid=$!
			for i in $(seq 300); do grep -q here /root/out && break; sleep 0.1; done; kill -INT $pid; wait $pid`)
		if !strings.Contains(errs, "web1: unknown: interrupted") || !strings.Contains(errs, "web2: not-started") {
			t.Errorf("interrupted:\n%s", errs)
		}
		gone(t, "1002")
	})
	t.Run("a lost line is no status", func(t *testing.T) {
		relay, err := r.Relay(ctx, web1, 22, rig.LinkSpec{})
		if err != nil {
			t.Fatal(err)
		}
		defer relay.Close()
		cut := make(chan error, 1)
		go func() {
			_, err := web1.Sh(ctx, "for i in $(seq 300); do pgrep -f '^sleep 1003$' >/dev/null && exit 0; sleep 0.1; done; exit 1")
			time.Sleep(100 * time.Millisecond)
			relay.Cut(true)
			cut <- err
		}()
		env := fmt.Sprintf(`DEPLOY_SSH_NODES='{"nodes":{"web1":{"host":"%s","options":["Port=%d"]}}}'`, relay.Addr, relay.Port)
		all := records(t, verdict.ExitUnknown, env+` deploy-ssh exec .#nodes --keepalive-timeout 4s --json -- sh -c '[ $(uname -n) = web2 ] || { sleep 1003; :; }'`)
		if err := <-cut; err != nil {
			t.Fatal(err)
		}
		want(t, ends(all), map[string]string{"web1": "unknown", "web2": "exit status 0"})
		gone(t, "1003")
	})
}
