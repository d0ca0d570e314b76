package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// identityFlake has nodes whose settings come from the environment. The hosts run
// and boot the system first, so a deploy of it costs one connection and one
// command. Each of new.N has a system of its own that a host has never seen.
const identityFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      inherit (builtins) genList;
      first = toplevels.mkToplevel { name = "first"; };
      node = name: toplevel: { inherit name toplevel; host = name; };
      fresh = n: toplevels.mkToplevel { name = "new-${toString n}"; payload.compressible = 100000 + n; };
    in
    {
      inherit first;
      web1 = [ (node "web1" first) ];
      web2 = [ (node "web2" first) ];
      both = [ (node "web1" first) (node "web2" first) ];
      new = builtins.listToAttrs (genList (n: { name = toString n; value = [ (node "web1" (fresh n)) ]; }) 20);
      big = [ (node "web2" (toplevels.mkToplevel { name = "big"; payload.incompressible = 4000000; })) ];
      kills-sessions = [ (node "web1" (toplevels.mkToplevel { name = "kills"; faults.killSessions = true; })) ];
      slow = [ (node "web1" (toplevels.mkToplevel { name = "slow"; faults.activateSeconds = 8; })) ];
      some = genList (n: node "k${toString n}" first) 8;
      many = genList (n: node "k${toString n}" first) 40;
      expected = [ (node "web1" first // { expect.hostName = "web1"; }) ];
      unexpected = [ (node "web1" first // { expect = { hostName = "web9"; machineId = "00000000000000000000000000000000"; }; }) (node "web2" first) ];
      unsettled = [ (node "web1" first // { ssh = { key = "/root/missing"; options = [ "Port=22" "Foo=bar" ]; }; }) (node "web2" first // { ssh.options = [ "ConnectTimeout=soon" ]; }) ];
    };
}
`

// identities is one rig for all tests of the way to a host.
type identities struct {
	rig               *rig.Rig
	web1, web2, gw    *rig.Host
	sshd              int    // the port of the next sshd
	key1, key2, gwKey string // host keys
}

func identityWorld(t *testing.T) *identities {
	t.Helper()
	// Another Debian has another OpenSSH: bookworm 9.2, trixie 10.0, forky 10.6.
	r := rig.Start(t, rig.Config{Suite: os.Getenv("RIG_SUITE"), Targets: []rig.Target{
		rigworld.Target("web1", 2201), rigworld.Target("web2", 2202), {Name: "gw", SSHPort: 2222},
	}})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), identityFlake); err != nil {
		t.Fatal(err)
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err != nil {
		t.Fatal(err)
	}
	w := &identities{rig: r, web1: r.Host("web1"), web2: r.Host("web2"), gw: r.Host("gw"), sshd: 4000}
	for _, h := range []*rig.Host{w.web1, w.web2} {
		if err := rigworld.Install(ctx, r, h, first); err != nil {
			t.Fatal(err)
		}
	}
	w.key1, w.key2, w.gwKey = w.web1.HostKey, w.web2.HostKey, w.gw.HostKey
	// An ssh first in PATH that writes down each call and what ssh makes of it. It gives
	// ssh its bare name, so that jumps find it in PATH, too.
	w.write(t, r.Deployer, "/root/bin/ssh", `#!/bin/bash
case " $* " in *" -G "*) ;; *)
	call=$(mktemp /root/calls/XXXXXXXX)
	printf '%s\n' "$@" >$call.argv
	/usr/bin/ssh -G "$@" </dev/null >$call.effective 2>/dev/null
	rm $call ;;
esac
exec -a ssh /usr/bin/ssh "$@"
`, 0o755)
	w.write(t, r.Deployer, "/root/other", w.sh(t, r.Deployer, "ssh-keygen -q -t ed25519 -N '' -f /root/o && cat /root/o"), 0o600)
	w.sh(t, r.Deployer, "mv /root/o.pub /root/other.pub; mkdir -p /root/calls /root/.ssh")
	return w
}

func (w *identities) sh(t *testing.T, h *rig.Host, script string) string {
	t.Helper()
	out, err := h.Sh(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *identities) write(t *testing.T, h *rig.Host, path, text string, mode uint32) {
	t.Helper()
	if err := h.WriteFile(t.Context(), path, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
	w.sh(t, h, fmt.Sprintf("chmod %o '%s'", mode, path))
}

// fresh forgets what earlier tests left on the deployer: saved keys, calls, the
// user's own configuration.
func (w *identities) fresh(t *testing.T) {
	t.Helper()
	w.sh(t, w.rig.Deployer, "rm -rf /root/calls/* /root/.ssh/config /root/.ssh/known_hosts* /root/.ssh/deploy-ssh.known_hosts /tmp/deploy-ssh-0 /root/client.conf")
}

// outcome is one call of the program.
type outcome struct {
	rig.Result
	records []report.Record
	results map[string]report.Result
}

// program calls the program in the flake's folder; env goes in front of it.
func (w *identities) program(t *testing.T, env, args string) outcome {
	t.Helper()
	out, err := w.rig.Deployer.Run(t.Context(), rig.Cmd{Args: []string{"/bin/sh", "-c",
		"cd " + rigworld.Flake + " && export PATH=/root/bin:$PATH " + rigworld.RaceEnv + " && " + env + " exec " + rigworld.Program + " " + args}})
	if err != nil {
		t.Fatal(err)
	}
	return outcome{Result: out}
}

// deploy deploys an attribute. settings is a node map for the environment; empty means none.
func (w *identities) deploy(t *testing.T, attribute, settings string, flags ...string) outcome {
	t.Helper()
	env := ""
	if settings != "" {
		w.write(t, w.rig.Deployer, "/root/settings.json", settings, 0o644)
		env = `DEPLOY_SSH_NODES="$(cat /root/settings.json)"`
	}
	return w.program(t, env, "'.#'"+attribute+" --json --settle 0s "+strings.Join(flags, " ")).read(t)
}

// read reads the records of a call with --json.
func (o outcome) read(t *testing.T) outcome {
	t.Helper()
	o.results = map[string]report.Result{}
	for line := range strings.Lines(o.Stdout) {
		var record report.Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("standard output has the line %q: %v", line, err)
		}
		o.records = append(o.records, record)
		if record.Result != nil {
			o.results[record.Result.Node] = *record.Result
		}
	}
	return o
}

// want checks a node's verdict and words of its reason.
func (o outcome) want(t *testing.T, node string, want verdict.Verdict, reason ...string) {
	t.Helper()
	got := o.results[node]
	if got.Verdict != want {
		t.Errorf("%s is %q (%s), want %q; exit code %d\n%s", node, got.Verdict, got.Reason, want, o.Code, o.Stderr)
	}
	for _, words := range reason {
		if !strings.Contains(got.Reason, words) {
			t.Errorf("the reason of %s lacks %q:\n%s", node, words, got.Reason)
		}
	}
}

// noted checks that a node's result has a note with these words.
func (o outcome) noted(t *testing.T, node, words string) {
	t.Helper()
	if notes := strings.Join(o.results[node].Notes, "\n"); !strings.Contains(notes, words) {
		t.Errorf("no note of %s has %q:\n%s\n%s", node, words, notes, o.Stderr)
	}
}

// detail is what the connect phase of a node came to.
func (o outcome) detail(node string) string {
	for _, r := range o.records {
		if r.Phase != nil && r.Phase.Node == node && r.Phase.Name == report.Connect {
			return r.Phase.Detail
		}
	}
	return ""
}

// refused checks that the program refused before anything was connected to.
func (o outcome) refused(t *testing.T, words ...string) {
	t.Helper()
	if o.Code != 2 {
		t.Errorf("exit code %d, want 2\n%s%s", o.Code, o.Stdout, o.Stderr)
	}
	for _, word := range words {
		if !strings.Contains(o.Stderr, word) {
			t.Errorf("the error lacks %q:\n%s", word, o.Stderr)
		}
	}
}

// now is a moment of a host's journal.
func (w *identities) now(t *testing.T, h *rig.Host) string {
	t.Helper()
	return strings.TrimSpace(w.sh(t, h, "journalctl --sync; date +%s.%N"))
}

// authRequests counts the login requests that a host's sshd has seen since then,
// of whatever kind: the first one of every client is for the method none.
func (w *identities) authRequests(t *testing.T, h *rig.Host, since string) int {
	t.Helper()
	return w.logged(t, h, since, "userauth-request for user")
}

// logged counts lines in the journal of a host's sshd.
func (w *identities) logged(t *testing.T, h *rig.Host, since, words string) int {
	t.Helper()
	var n int
	out := w.sh(t, h, fmt.Sprintf("journalctl --sync; journalctl -t sshd -t sshd-session -t sshd-auth --since @%s -o cat | grep -cF '%s'; true", since, words))
	if _, err := fmt.Sscan(out, &n); err != nil {
		t.Fatalf("counting %q: %v", words, err)
	}
	return n
}

// fresh is the attribute of a system that only one test deploys; N is below 20.
func fresh(n int) string { return fmt.Sprintf(`'new."%d"'`, n) }

// pinned is the settings of one node with a pinned key and options.
func pinned(node, hostKey string, options ...string) string {
	text, err := json.Marshal(map[string]any{"nodes": map[string]any{node: map[string]any{"hostKey": hostKey, "options": options}}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// options is the settings of one node with options.
func options(node string, options ...string) string { return pinned(node, "", options...) }

// call is one ssh that was run on the deployer.
type call struct {
	argv      []string
	effective map[string]string
}

// calls are the calls of ssh since [identities.fresh], apart from questions (-G).
func (w *identities) calls(t *testing.T) []call {
	t.Helper()
	out := w.sh(t, w.rig.Deployer, `cd /root/calls; for f in *.argv; do [ -e "$f" ] || continue; echo "==> $f"; cat $f; echo "--> "; cat ${f%.argv}.effective; done`)
	var calls []call
	for _, block := range regexp.MustCompile(`(?m)^==> .*\n`).Split(out, -1)[1:] {
		argv, effective, _ := strings.Cut(block, "--> \n")
		c := call{argv: strings.Split(strings.TrimSuffix(argv, "\n"), "\n"), effective: map[string]string{}}
		for line := range strings.Lines(effective) {
			key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
			if _, ok := c.effective[key]; !ok {
				c.effective[key] = value
			}
		}
		calls = append(calls, c)
	}
	return calls
}

// ownSSHD starts one more sshd on a host, with lines of configuration of its own, and
// returns its port.
func (w *identities) ownSSHD(t *testing.T, h *rig.Host, lines string) int {
	t.Helper()
	w.sshd++
	port := w.sshd
	hostKey := "HostKey /etc/ssh/ssh_host_ed25519_key\n"
	if strings.Contains(lines, "HostKey ") {
		hostKey = ""
	}
	name := fmt.Sprintf("/root/sshd-%d", port)
	w.write(t, h, name, fmt.Sprintf("%sPort %d\n%sUsePAM yes\nLogLevel DEBUG1\nPidFile %s.pid\n", lines, port, hostKey, name), 0o600)
	w.sh(t, h, fmt.Sprintf("if grep -q PerSourcePenalties /usr/sbin/sshd; then sed -i '1iPerSourcePenalties no' %[1]s; fi; /usr/sbin/sshd -f %[1]s -E %[1]s.log && for i in $(seq 100); do [ -s %[1]s.pid ] && exit 0; sleep 0.05; done; exit 1", name))
	t.Cleanup(func() {
		_, _ = h.Sh(context.Background(), fmt.Sprintf("kill -CONT $(cat %[1]s.pid); kill $(cat %[1]s.pid)", name))
	})
	return port
}

func (w *identities) sshdLog(t *testing.T, h *rig.Host, port int) string {
	t.Helper()
	return w.sh(t, h, fmt.Sprintf("cat /root/sshd-%d.log", port))
}
