package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// Every ssh of a whole deploy through a jump host, with a reconnect: the command's,
// the copy's, the new one's and the hop's. What counts is what the real ssh makes of
// the arguments that it gets.
func everyConnection(t *testing.T, w *identities) {
	for _, tt := range []struct {
		name, attribute, settings, config string
		nodeChecking                      string
		pinned                            bool
	}{
		{name: "first use", attribute: fresh(4), settings: options("web1", "Port=2201", "ProxyJump=gw:2222"), nodeChecking: "accept-new"},
		{name: "pinned", attribute: "kills-sessions", settings: pinned("web1", w.key1, "Port=2201", "ProxyJump=gw:2222"), nodeChecking: "true", pinned: true},
		{name: "pinned, option", attribute: fresh(5), settings: pinned("web1", w.key1, "Port=2201", "ProxyJump=gw:2222", "StrictHostKeyChecking=no"), nodeChecking: "false", pinned: true},
		{name: "pinned, client configuration", attribute: fresh(6), settings: pinned("web1", w.key1, "Port=2201", "ProxyJump=gw:2222"),
			config: "Host web1\n    StrictHostKeyChecking off\n", nodeChecking: "false", pinned: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.fresh(t)
			flags := ""
			if tt.config != "" {
				w.write(t, w.rig.Deployer, "/root/client.conf", tt.config, 0o600)
				flags = "-F /root/client.conf"
			}
			want := verdict.Switched
			if tt.attribute != "kills-sessions" {
				want, flags = verdict.Staged, flags+" --goal push"
			}
			o := w.deploy(t, tt.attribute, tt.settings, flags)
			o.want(t, "web1", want)
			kinds := map[string]int{}
			for _, c := range w.calls(t) {
				e := c.effective
				// Nobody may set these, for any of them.
				for key, want := range map[string]string{
					"batchmode": "yes", "requesttty": "false", "permitlocalcommand": "no", "controlpersist": "no", "loglevel": "INFO",
					"remotecommand": "", "stdinnull": "no", "forkafterauthentication": "no", "sessiontype": "default",
				} {
					got := e[key]
					switch {
					case key == "sessiontype" && (slices.Contains(c.argv, "-N") || slices.Contains(c.argv, "-W")):
						continue // it has no command at all
					case key == "permitlocalcommand" && slices.Contains(c.argv, "-oLocalCommand=echo started"):
						continue // Nix's own, on the command line
					}
					if got != want {
						t.Errorf("ssh %q: %s is %q, want %q", c.argv, key, got, want)
					}
				}
				switch host := e["host"]; {
				case host == "deploy-ssh-node":
					kinds["rider"]++
					if e["proxycommand"] != "false" || !strings.HasSuffix(e["controlpath"], "/ctl") {
						t.Errorf("ssh %q could dial: proxycommand %q, controlpath %q", c.argv, e["proxycommand"], e["controlpath"])
					}
				case host == "web1" && e["port"] == "2201":
					kinds["node"]++
					wantFile := "/tmp/deploy-ssh-0/known_hosts"
					if tt.pinned {
						wantFile = "/pin"
					}
					if e["stricthostkeychecking"] != tt.nodeChecking || !strings.HasSuffix(e["userknownhostsfile"], wantFile) {
						t.Errorf("ssh %q: checking %q against %q, want %q against %s", c.argv, e["stricthostkeychecking"], e["userknownhostsfile"], tt.nodeChecking, wantFile)
					}
				case host == "gw" && e["port"] == "2222":
					kinds["hop"]++
					if e["stricthostkeychecking"] != "accept-new" || e["userknownhostsfile"] != "/tmp/deploy-ssh-0/known_hosts" || e["controlpath"] != "" && e["controlpath"] != "none" {
						t.Errorf("hop %q: checking %q against %q, controlpath %q", c.argv, e["stricthostkeychecking"], e["userknownhostsfile"], e["controlpath"])
					}
				default:
					t.Errorf("an ssh to somewhere else: %q to %s port %s", c.argv, host, e["port"])
				}
				if e["host"] == "deploy-ssh-node" {
					continue
				}
				for key, want := range map[string]string{
					"connecttimeout": "15", "serveraliveinterval": "7", "serveralivecountmax": "3",
					"globalknownhostsfile": "/dev/null", "nohostauthenticationforlocalhost": "no", "verifyhostkeydns": "false",
					"updatehostkeys": "false", "knownhostscommand": "",
				} {
					if e[key] != want {
						t.Errorf("ssh %q: %s is %q, want %q", c.argv, key, e[key], want)
					}
				}
			}
			// The way to the node and its hop; after the sessions were killed, the way once
			// more. Commands and copy ride on it, without an ssh that could dial at all.
			least := 1
			if tt.attribute == "kills-sessions" {
				least = 2
			}
			if kinds["node"] < least || kinds["hop"] != kinds["node"] {
				t.Errorf("connections seen: %v, want at least %d to the node with as many hops", kinds, least)
			}
		})
	}
}

// Jump hosts: all goes through them; each is trusted on first use with the saved
// keys; the node's own key is checked end to end.
func jumps(t *testing.T, w *identities) {
	d := w.rig.Deployer
	const saved = "/tmp/deploy-ssh-0/known_hosts"
	// Whatever reaches the nodes does so from the last hop.
	from := func(h *rig.Host, since string, hop *rig.Host) {
		t.Helper()
		all := w.logged(t, h, since, "Connection from ")
		right := w.logged(t, h, since, "Connection from "+hop.Addr+" ") + w.logged(t, h, since, "Connection from "+hop.Addr6+" ")
		if all == 0 || all != right {
			t.Errorf("%s saw %d connections, %d of them from %s", h.Name, all, right, hop.Name)
		}
	}
	t.Run("one hop, pinned node", func(t *testing.T) {
		w.fresh(t)
		since := w.now(t, w.web1)
		o := w.deploy(t, "web1", pinned("web1", w.key1, "Port=2201", "ProxyJump=gw:2222"))
		if v := o.results["web1"].Verdict; v != verdict.Unchanged && v != verdict.Switched {
			t.Errorf("web1 is %s: %s", v, o.results["web1"].Reason)
		}
		from(w.web1, since, w.gw)
		if text := w.sh(t, d, "cat "+saved); !strings.Contains(text, w.gwKey) || strings.Contains(text, w.key1) {
			t.Errorf("%s should have the hop's key alone:\n%s", saved, text)
		}
	})
	t.Run("two hops", func(t *testing.T) {
		w.fresh(t)
		w.authorize(t)
		since := w.now(t, w.web1)
		o := w.deploy(t, "web1", pinned("web1", w.key1, "Port=2201", "ProxyJump=gw:2222,web2:2202"))
		if v := o.results["web1"].Verdict; v != verdict.Unchanged && v != verdict.Switched {
			t.Errorf("web1 is %s: %s", v, o.results["web1"].Reason)
		}
		from(w.web1, since, w.web2)
		if text := w.sh(t, d, "cat "+saved); !strings.Contains(text, w.gwKey) || !strings.Contains(text, w.key2) {
			t.Errorf("%s lacks a hop's key:\n%s", saved, text)
		}
	})
	t.Run("by the client configuration", func(t *testing.T) {
		w.fresh(t)
		w.write(t, d, "/root/.ssh/config", "Host web1\n    Port 2201\n    ProxyJump gate\nHost gate\n    HostName gw\n    Port 2222\n", 0o600)
		since := w.now(t, w.web1)
		o := w.deploy(t, "web1", "")
		if v := o.results["web1"].Verdict; v != verdict.Unchanged && v != verdict.Switched {
			t.Errorf("web1 is %s: %s", v, o.results["web1"].Reason)
		}
		from(w.web1, since, w.gw)
	})
	t.Run("a hop with another key than the saved one", func(t *testing.T) {
		w.fresh(t)
		w.sh(t, d, "mkdir -m 700 /tmp/deploy-ssh-0")
		w.write(t, d, saved, "[gw]:2222 "+otherKey+"\n", 0o600)
		since, sinceGw := w.now(t, w.web1), w.now(t, w.gw)
		o := w.deploy(t, "web1", pinned("web1", w.key1, "Port=2201", "ProxyJump=gw:2222"))
		o.want(t, "web1", verdict.HostKeyRefused, "the jump host [gw]:2222 shows another key than the saved one", "remove line 1 of "+saved, "shown:    ED25519 SHA256:")
		if n := w.authRequests(t, w.gw, sinceGw) + w.logged(t, w.web1, since, "Connection from"); n != 0 {
			t.Errorf("there were %d logins or connections behind the refused hop", n)
		}
	})
	t.Run("a node with another key behind a hop", func(t *testing.T) {
		w.fresh(t)
		since := w.now(t, w.web1)
		o := w.deploy(t, "web1", pinned("web1", otherKey, "Port=2201", "ProxyJump=gw:2222"))
		o.want(t, "web1", verdict.HostKeyRefused, "another key than the pinned one")
		if n := w.authRequests(t, w.web1, since); n != 0 {
			t.Errorf("sshd saw %d login requests, want none", n)
		}
	})
	t.Run("the node's own address", func(t *testing.T) {
		w.fresh(t)
		for _, jump := range []string{"web1", "deploy@web1:22", "gw:2222,web1"} {
			o := w.deploy(t, "web1", options("web1", "Port=2201", "ProxyJump="+jump))
			o.refused(t, "DEPLOY_SSH_NODES nodes.web1.options", "the node's own host", "HostName=web1")
		}
		// The remedy works: the jump goes to another sshd of the same machine.
		port := w.ownSSHD(t, w.web1, "")
		o := w.deploy(t, "web1", `{"nodes": {"web1": {"host": "web1-node", "options": ["HostName=web1", "Port=2201", "ProxyJump=web1:`+fmt.Sprint(port)+`"]}}}`)
		if v := o.results["web1"].Verdict; v != verdict.Unchanged && v != verdict.Switched {
			t.Errorf("with the remedy: %s: %s", v, o.results["web1"].Reason)
		}
	})
	t.Run("a hop that asks for a password", func(t *testing.T) {
		w.fresh(t)
		port := w.ownSSHD(t, w.gw, "AuthenticationMethods password\n")
		o := w.deploy(t, "web1", options("web1", "Port=2201", fmt.Sprintf("ProxyJump=gw:%d", port)))
		o.want(t, "web1", verdict.LoginRefused, "root@gw: Permission denied (password)")
	})
	t.Run("a hop that never speaks", func(t *testing.T) {
		w.fresh(t)
		o := w.deploy(t, "web1", options("web1", "Port=2201", fmt.Sprintf("ProxyJump=gw:%d", w.silent(t, w.gw))), "--connect-timeout 2s")
		o.want(t, "web1", verdict.Unreachable, "timed out")
	})
	t.Run("a hop that freezes", func(t *testing.T) {
		w.fresh(t)
		// The node's answer never comes, and the hop is frozen meanwhile.
		port := w.ownSSHD(t, w.web1, "ForceCommand touch /run/asked; sleep 100\n")
		frozen := make(chan error, 1)
		go func() {
			err := waitFor(t.Context(), w.web1, "[ -e /run/asked ]")
			if err == nil {
				err = w.gw.Unplug(t.Context())
			}
			frozen <- err
		}()
		o := w.deploy(t, "web1", options("web1", fmt.Sprintf("Port=%d", port), "ProxyJump=gw:2222"), "--keepalive-timeout 4s")
		if err := <-frozen; err != nil {
			t.Error(err)
		}
		if err := w.gw.Plug(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.want(t, "web1", verdict.Unreachable)
		if reason := o.results["web1"].Reason; strings.Contains(reason, "no answer within") {
			t.Errorf("the command's own limit ended it, not the keepalive: %s", reason)
		}
		w.sh(t, w.web1, "rm -f /run/asked")
	})
}

// authorize gives the deployer's public key to the hops too.
func (w *identities) authorize(t *testing.T) {
	t.Helper()
	w.write(t, w.gw, "/root/.ssh/authorized_keys", w.rig.DeployerKey+"\n", 0o600)
}

// silent returns a port that takes connections and never speaks: a stopped sshd's.
func (w *identities) silent(t *testing.T, h *rig.Host) int {
	t.Helper()
	port := w.ownSSHD(t, h, "")
	w.sh(t, h, fmt.Sprintf("kill -STOP $(cat /root/sshd-%d.pid)", port))
	return port
}

// After the line was lost, a host with another key is not logged in to.
func reconnectToAnotherKey(t *testing.T, w *identities) {
	relay, err := w.rig.Relay(t.Context(), w.web1, 2201, rig.LinkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	var since string
	cut := make(chan error, 1)
	w.sh(t, w.web1, "rm -rf /run/deploy-ssh")
	go func() {
		ctx := t.Context()
		err := waitFor(ctx, w.web1, "grep -qs 'takes its time: 2' /run/deploy-ssh/*/*.log")
		if err == nil {
			relay.Cut(true)
			_, err = w.web1.Sh(ctx, "cd /etc/ssh && cp ssh_host_ed25519_key kept && rm -f other* && ssh-keygen -q -t ed25519 -N '' -f other && cp other ssh_host_ed25519_key && systemctl restart ssh")
		}
		if err == nil {
			since, err = w.web1.Sh(ctx, "journalctl --sync; date +%s.%N")
		}
		if err == nil {
			err = relay.Mend(ctx)
		}
		cut <- err
	}()
	o := w.deploy(t, "slow", pinned("web1", w.key1, "HostName=127.0.0.1", fmt.Sprintf("Port=%d", relay.Port)), "--reconnect-timeout 4s")
	if err := <-cut; err != nil {
		t.Fatal(err)
	}
	o.want(t, "web1", verdict.Unknown, "another key than the pinned one")
	since = strings.TrimSpace(since)
	if n := w.authRequests(t, w.web1, since); n != 0 {
		t.Errorf("sshd saw %d login requests, want none", n)
	}
	if n := w.logged(t, w.web1, since, "Connection from"); n == 0 {
		t.Error("no new connection was tried")
	}
	w.sh(t, w.web1, "cd /etc/ssh && cp kept ssh_host_ed25519_key && systemctl restart ssh; for i in $(seq 100); do [ -e /run/nixos/switch-to-configuration.lock ] && flock -n /run/nixos/switch-to-configuration.lock true && exit 0; sleep 0.1; done")
	w.deploy(t, "web1", pinned("web1", w.key1, "Port=2201")).want(t, "web1", verdict.Switched)
}

// The user's own masters, commands and terminals don't disturb a deploy, and the
// masters stay alive (cases 2 and 7).
func usersMaster(t *testing.T, w *identities) {
	d := w.rig.Deployer
	w.write(t, d, "/root/.ssh/included", "Host web1\n    Port 2201\n", 0o600)
	for i, tt := range []struct{ name, lines string }{
		{"auto", "ControlMaster auto"},
		{"yes", "ControlMaster yes"},
		{"autoask", "ControlMaster autoask"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.sh(t, d, "rm -f /tmp/deploy-ssh-0/known_hosts")
			w.write(t, d, "/root/.ssh/config", `Include /root/.ssh/included
Host *
    `+tt.lines+`
    ControlPath /root/cm
    ControlPersist 10m
    PermitLocalCommand yes
    LocalCommand echo hello; echo hello >&2
    RequestTTY force
    RemoteCommand echo remote
    LogLevel `+[]string{"DEBUG3", "QUIET", "VERBOSE"}[i]+`
    StdinNull yes
    ForkAfterAuthentication yes
    SessionType none
Match exec "true"
    SendEnv LANG
`, 0o600)
			w.sh(t, d, "ssh -F none -fN -p 2201 -o ControlMaster=yes -o ControlPath=/root/cm -o StrictHostKeyChecking=accept-new -o BatchMode=yes web1 >/dev/null 2>&1 </dev/null")
			o := w.deploy(t, fresh(i+1), "", "--goal push")
			o.want(t, "web1", verdict.Staged)
			w.sh(t, d, "ssh -F none -o ControlPath=/root/cm -O check web1")
			if left := w.sh(t, d, "pgrep -af 'deploy-ssh[.]' ; true"); left != "" {
				t.Errorf("left running: %s", left)
			}
			w.sh(t, d, "ssh -F none -o ControlPath=/root/cm -O exit web1")
		})
	}
}

// The keys that a host shows, as entries to paste, over a jump, without a login.
func showsHostKeys(t *testing.T, w *identities) {
	w.sh(t, w.web1, "cd /root; for k in ed25519 ecdsa rsa; do [ -e hk-$k ] || ssh-keygen -q -t $k -N '' -f hk-$k; done")
	port := w.ownSSHD(t, w.web1, "HostKey /root/hk-ed25519\nHostKey /root/hk-ecdsa\nHostKey /root/hk-rsa\n")
	var keys []string
	for _, k := range []string{"ed25519", "ecdsa", "rsa"} {
		keys = append(keys, strings.Join(strings.Fields(w.sh(t, w.web1, "cat /root/hk-"+k+".pub"))[:2], " "))
	}
	settings := options("web1", fmt.Sprintf("Port=%d", port), "ProxyJump=gw:2222", "NoHostAuthenticationForLocalhost=yes", "StrictHostKeyChecking=no")
	w.write(t, w.rig.Deployer, "/root/settings.json", settings, 0o644)
	o := w.program(t, `DEPLOY_SSH_NODES="$(cat /root/settings.json)"`, "hostkeys .#web1 --json")
	var document struct {
		Nodes map[string]struct{ HostKey string }
	}
	if err := json.Unmarshal([]byte(o.Stdout), &document); err != nil || o.Code != 0 {
		t.Fatalf("exit code %d, %v\n%s%s", o.Code, err, o.Stdout, o.Stderr)
	}
	if got, want := document.Nodes["web1"].HostKey, strings.Join(keys, "\n"); got != want {
		t.Errorf("the keys are %q, want %q", got, want)
	}
	log := w.sshdLog(t, w.web1, port)
	if n := strings.Count(log, "Connection from"); n != 3 {
		t.Errorf("there were %d connections, want one for each of 3 types", n)
	}
	if strings.Contains(log, "userauth-request") {
		t.Errorf("a login was tried:\n%s", log)
	}
	// And as a person pastes them: into the map of the environment, or into the flake.
	for _, key := range keys {
		w.deploy(t, "web1", pinned("web1", key, fmt.Sprintf("Port=%d", port), "ProxyJump=gw:2222")).want(t, "web1", verdict.Unchanged)
	}
	text := w.program(t, `DEPLOY_SSH_NODES="$(cat /root/settings.json)"`, "hostkeys .#both web1")
	if want := "ssh.hostKey = ''\n  " + strings.Join(keys, "\n  ") + "\n'';\n"; !strings.HasSuffix(text.Stdout, want) || text.Code != 0 {
		t.Errorf("exit code %d, the text is\n%s\nwant it to end in\n%s\n%s", text.Code, text.Stdout, want, text.Stderr)
	}
	// A host that is away is named, the others are shown.
	w.write(t, w.rig.Deployer, "/root/settings.json", `{"nodes": {"web1": {"options": ["Port=1"]}, "web2": {"options": ["Port=2202"]}}}`, 0o644)
	o = w.program(t, `DEPLOY_SSH_NODES="$(cat /root/settings.json)"`, "hostkeys .#both")
	if o.Code != 1 || !strings.Contains(o.Stderr, "web1: asking web1 for its host key: ssh: connect to host web1 port 1: Connection refused") || !strings.Contains(o.Stdout, w.key2) {
		t.Errorf("exit code %d\n%s%s", o.Code, o.Stdout, o.Stderr)
	}
}

// explain and check contact nobody.
func explainAndCheck(t *testing.T, w *identities) {
	since1, since2 := w.now(t, w.web1), w.now(t, w.web2)
	w.write(t, w.rig.Deployer, "/root/client.conf", "Host web2\n    Port 2202\n    HostName "+w.web2.Addr+"\n    StrictHostKeyChecking no\n", 0o600)
	w.write(t, w.rig.Deployer, "/root/settings.json", `{"defaults": {"user": "root"}, "nodes": {"web1": {"options": ["Port=2201", "ProxyJump=a@gw:2222"]}, "web2": {"hostKey": "`+w.key2+`"}}}`, 0o644)
	env := `DEPLOY_SSH_CONFIG=/root/client.conf DEPLOY_SSH_NODES="$(cat /root/settings.json)"`
	o := w.program(t, env, "explain .#both --json")
	var all []struct {
		Node, Address, Port, User, HostKey, Config string
		Jumps, Weakened, Notes                     []string
		Settings                                   map[string]struct {
			Value  any
			Origin string
		}
	}
	if err := json.Unmarshal([]byte(o.Stdout), &all); err != nil || len(all) != 2 {
		t.Fatalf("exit code %d, %v\n%s%s", o.Code, err, o.Stdout, o.Stderr)
	}
	one, two := all[0], all[1]
	if one.Node != "web1" || one.Port != "2201" || one.User != "root" || !slices.Equal(one.Jumps, []string{"a@gw:2222"}) ||
		one.Settings["options"].Origin != "DEPLOY_SSH_NODES nodes.web1" || one.Settings["user"].Origin != "DEPLOY_SSH_NODES defaults" || one.Settings["host"].Origin != "the node's host" {
		t.Errorf("web1 is explained as %+v", one)
	}
	if two.Address != w.web2.Addr || two.Port != "2202" || len(two.Weakened) != 1 || len(two.Notes) != 1 || !strings.Contains(two.Config, "    Include /tmp/") {
		t.Errorf("web2 is explained as %+v", two)
	}
	text := w.program(t, env, "explain .#both web1")
	for _, words := range []string{"ProxyJump=a@gw:2222  DEPLOY_SSH_NODES nodes.web1", "ssh connects to web1 port 2201 as root via a@gw:2222", "BatchMode yes", "built-in"} {
		if !strings.Contains(text.Stdout, words) {
			t.Errorf("the explanation lacks %q:\n%s%s", words, text.Stdout, text.Stderr)
		}
	}
	if strings.Contains(text.Stdout, "web2\n") {
		t.Error("a node that was not asked for is explained")
	}
	o = w.program(t, env, "check .#both")
	if o.Code != 0 || !strings.Contains(o.Stdout, "pinned, but the pin is weakened by StrictHostKeyChecking false (client configuration /root/client.conf)") ||
		!strings.Contains(o.Stdout, "\n2 nodes checked, nothing wrong") || !strings.HasSuffix(o.Stdout, "; no host was contacted\n") {
		t.Errorf("check: exit code %d\n%s%s", o.Code, o.Stdout, o.Stderr)
	}
	o = w.program(t, "", "check .#unsettled")
	o.refused(t, ".#unsettled nodes.web1.ssh.options[1]", "ssh refuses it: Bad configuration option: foo", ".#unsettled nodes.web1.ssh.key: the key file /root/missing can't be read: no such file or directory",
		".#unsettled nodes.web2.ssh.options[0]", "ConnectTimeout=soon")
	if n := w.logged(t, w.web1, since1, "Connection from") + w.logged(t, w.web2, since2, "Connection from"); n != 0 {
		t.Errorf("there were %d connections", n)
	}
}

// What ssh itself or a key file refuses ends the run before any connection, all
// nodes' problems at once (cases 2 and 3).
func refusedBefore(t *testing.T, w *identities) {
	d := w.rig.Deployer
	w.sh(t, d, "cd /root; rm -f locked* open; ssh-keygen -q -t ed25519 -N secret -f locked; cp .ssh/id_ed25519 open; chmod 644 open")
	since := w.now(t, w.web1)
	for _, tt := range []struct {
		env, settings string
		words         []string
	}{
		{"", options("web1", "Foo=bar", "Port=70000"), []string{"DEPLOY_SSH_NODES nodes.web1.options[0]", "Bad configuration option: foo", "options[1]", "Bad port '70000'"}},
		{"", options("web1", "ConnectTimeout=soon"), []string{"options[0]", "invalid time value"}},
		{"", options("web1", "-F ./cfg"), []string{"options[0]", "command-line form"}},
		{"", options("web1", " -p 22 "), []string{"options[0]"}},
		{"", options("web1", "-n"), []string{"options[0]", "command-line form"}},
		{"", options("web1", "-tt"), []string{"options[0]", "command-line form"}},
		{"", options("web1", "-oRequestTTY=force"), []string{"options[0]", "command-line form"}},
		{"", options("web1", "-W 10.0.0.1:22"), []string{"options[0]", "command-line form"}},
		{"", options("web1", "RequestTTY=force"), []string{"options[0]", "RequestTTY"}},
		{"", `{"nodes": {"web1": {"host": "-oProxyCommand=touch /root/pwned"}}}`, []string{"nodes.web1.host"}},
		{"", `{"nodes": {"web1": {"host": "[::1"}}}`, []string{"nodes.web1.host"}},
		{"", `{"nodes": {"web1": {"host": "::1]"}}}`, []string{"nodes.web1.host"}},
		{"", `{"nodes": {"web1": {"host": "::1:2222x"}}}`, []string{"nodes.web1.host"}},
		{"DEPLOY_SSH_KEY=/root/missing", "", []string{"DEPLOY_SSH_KEY: the key file /root/missing can't be read"}},
		{"DEPLOY_SSH_KEY=/root/locked", "", []string{"DEPLOY_SSH_KEY", "has a passphrase, which nobody is asked for, and there is no agent"}},
		{"DEPLOY_SSH_KEY=/root/open", "", []string{"DEPLOY_SSH_KEY", "its permissions 0644 are too open"}},
		{"DEPLOY_SSH_KEY=/root/settings.json", "", []string{"DEPLOY_SSH_KEY", "no private key that ssh can read"}},
		{"", options("web1", "Port=22", "IdentityFile=~/missing_%r"), []string{"DEPLOY_SSH_NODES nodes.web1.options[1]", "the key file /root/missing_root can't be read"}},
		{"", options("web1", "IdentityFile=/root/locked"), []string{"options[0]", "has a passphrase, which nobody is asked for, and there is no agent"}},
		{"", options("web1", "CertificateFile=${HOME}/missing"), []string{"options[0]", "the certificate file /root/missing can't be read"}},
		{"DEPLOY_SSH_CONFIG=/root/nowhere", "", []string{"DEPLOY_SSH_CONFIG", "/root/nowhere"}},
	} {
		settings := tt.settings
		if settings == "" {
			settings = "{}"
		}
		w.write(t, d, "/root/settings.json", settings, 0o600)
		o := w.program(t, tt.env+` DEPLOY_SSH_NODES="$(cat /root/settings.json)"`, ".#both")
		if o.Code != 2 {
			t.Errorf("%s %s: exit code %d, want 2\n%s", tt.env, tt.settings, o.Code, o.Stderr)
		}
		for _, word := range tt.words {
			if !strings.Contains(o.Stderr, word) {
				t.Errorf("%s %s: the error lacks %q:\n%s", tt.env, tt.settings, word, o.Stderr)
			}
		}
	}
	if n := w.logged(t, w.web1, since, "Connection from"); n != 0 || len(w.calls(t)) != 0 {
		t.Errorf("there were %d connections, and ssh was called %d times", n, len(w.calls(t)))
	}
	w.sh(t, d, "[ ! -e /root/pwned ]")
}

// Without any key ssh fails at once and asks nobody.
func nothingToLoginWith(t *testing.T, w *identities) {
	d := w.rig.Deployer
	w.sh(t, d, "mkdir /root/away && mv /root/.ssh/id_* /root/away/")
	defer w.sh(t, d, "mv /root/away/* /root/.ssh/ && rmdir /root/away")
	o := w.deploy(t, "web1", options("web1", "Port=2201"))
	o.want(t, "web1", verdict.LoginRefused, "Permission denied (publickey", "there was nothing to log in with")
	// An agent will do.
	w.sh(t, d, "ssh-agent -a /root/agent.sock >/root/agent.env && SSH_AUTH_SOCK=/root/agent.sock ssh-add -q /root/away/id_ed25519")
	w.write(t, d, "/root/settings.json", options("web1", "Port=2201"), 0o600)
	agent := w.program(t, `SSH_AUTH_SOCK=/root/agent.sock DEPLOY_SSH_NODES="$(cat /root/settings.json)"`, ".#web1")
	if agent.Code != 0 {
		t.Errorf("with an agent: exit code %d\n%s", agent.Code, agent.Stderr)
	}
	w.sh(t, d, ". /root/agent.env >/dev/null; kill $SSH_AGENT_PID")
}

// The pinned key's file and all else that is private is gone after a signal.
func signals(t *testing.T, w *identities) {
	d := w.rig.Deployer
	w.write(t, d, "/root/settings.json", pinned("web1", w.key1, "HostName=gw", fmt.Sprintf("Port=%d", w.silent(t, w.gw))), 0o600)
	for _, signal := range []string{"INT", "TERM", "HUP"} {
		script := fmt.Sprintf(`cd %s; DEPLOY_SSH_NODES="$(cat /root/settings.json)" env --default-signal %s .#web1 >/root/out 2>&1 & pid=$!
for i in $(seq 200); do [ -n "$(ls /tmp/deploy-ssh.*/n*/pin 2>/dev/null)" ] && pgrep -x ssh >/dev/null && break; sleep 0.1; done
ls /tmp/deploy-ssh.*/n*/pin || exit 1
kill -%s $pid; wait $pid; code=$?; ls -d /tmp/deploy-ssh.* 2>/dev/null && exit 2; pgrep -x ssh && exit 3; exit $((code == 130 ? 0 : 100 + code))`, rigworld.Flake, rigworld.Program, signal)
		// A shell's background job has SIGINT ignored, and the program would keep to that.
		out, err := d.Run(t.Context(), rig.Cmd{Args: []string{"/bin/bash", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		if out.Code != 0 {
			t.Errorf("SIG%s: %d\n%s%s", signal, out.Code, out.Stdout, out.Stderr)
		}
	}
}

// waitFor waits until a script on a host succeeds.
func waitFor(ctx context.Context, h *rig.Host, script string) error {
	for range 300 {
		out, err := h.Run(ctx, rig.Cmd{Args: []string{"/bin/sh", "-c", script}})
		if err != nil || out.Code == 0 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s: not so within 30 s: %s", h.Name, script)
}
