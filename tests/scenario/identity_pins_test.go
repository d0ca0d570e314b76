package scenario_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
)

func TestIdentity(t *testing.T) {
	t.Parallel()
	w := identityWorld(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *identities)
	}{
		{"LooseUserConfiguration", looseUserConfiguration},
		{"OperatorWins", operatorWins},
		{"PinHolds", pinHolds},
		{"SavedKeys", savedKeys},
		{"SavedPlaces", savedPlaces},
		{"TakenOver", takenOver},
		{"ManInTheMiddle", manInTheMiddle},
		{"RequirePins", requirePins},
		{"WrongHost", wrongHosts},
		{"EveryConnection", everyConnection},
		{"Jumps", jumps},
		{"ReconnectToAnotherKey", reconnectToAnotherKey},
		{"UsersMaster", usersMaster},
		{"HostKeys", showsHostKeys},
		{"ExplainAndCheck", explainAndCheck},
		{"RefusedBefore", refusedBefore},
		{"NothingToLoginWith", nothingToLoginWith},
		{"Signals", signals},
		{"Addresses", addresses},
		{"Users", users},
		{"Certificates", certificates},
		{"Noise", noise},
		{"LoginShells", loginShells},
		{"Waits", waits},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.fresh(t)
			tt.test(t, w)
			if left := w.sh(t, w.rig.Deployer, "pgrep -ax ssh; ls -d /tmp/deploy-ssh.* 2>/dev/null; true"); left != "" {
				t.Errorf("left behind on the deployer:\n%s", left)
			}
		})
	}
}

// loosest is every keyword of ssh_config that has a say in whether a host's key is
// trusted, at its loosest. real is a file that has the key which the host shows.
var loosest = []string{
	"StrictHostKeyChecking no",
	"UserKnownHostsFile /root/real",
	"GlobalKnownHostsFile /root/real",
	"NoHostAuthenticationForLocalhost yes",
	"KnownHostsCommand /bin/cat /root/real",
	"VerifyHostKeyDNS yes",
	"UpdateHostKeys yes",
	"CheckHostIP yes",
	"HostKeyAlias real",
	"HashKnownHosts yes",
	"HostKeyAlgorithms +ssh-rsa",
	"CASignatureAlgorithms +ssh-rsa",
	"FingerprintHash md5",
	"RevokedHostKeys none",
	"CanonicalizeHostname always",
	"VisualHostKey yes",
	"ControlMaster auto\n    ControlPath /root/cm-%C",
	"BatchMode no",
}

// manyNodes gives the nodes k0, k1, … of the map one keyword each, and a wrong pin.
// The first half is reached at the host's own address, the second at 127.0.0.1 or localhost.
func manyNodes(w *identities, relay *rig.Relay) (settings, config string, nodes []string) {
	all := strings.Join(loosest, "\n    ")
	lines := append(append([]string{}, loosest...), all)
	var entries []string
	for i := range 40 {
		line := lines[i%20%len(lines)]
		name := fmt.Sprintf("k%d", i)
		host, port := w.web1.Addr, 2201
		if i >= 20 {
			host, port = relay.Addr, relay.Port
			if i%2 == 1 {
				host = "localhost"
			}
		}
		entries = append(entries, fmt.Sprintf("%q: {\"hostKey\": %q}", name, otherKey))
		config += fmt.Sprintf("Host %s\n    HostName %s\n    Port %d\n    %s\n", name, host, port, line)
		nodes = append(nodes, name)
	}
	return `{"nodes": {` + strings.Join(entries, ", ") + `}}`, config, nodes
}

// otherKey is a public key that no host has.
const otherKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1ZbXpGmEmQxZxXg5sQ1oFyqFz7d3SgQeFhR5V3aB1c"

// Whatever the user's own ~/.ssh/config says, there is no login on a wrong pin (case 6).
func looseUserConfiguration(t *testing.T, w *identities) {
	relay, err := w.rig.Relay(t.Context(), w.web1, 2201, rig.LinkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	w.write(t, w.rig.Deployer, "/root/real", "* "+w.key1+"\n", 0o644)
	settings, config, nodes := manyNodes(w, relay)
	w.write(t, w.rig.Deployer, "/root/.ssh/config", config, 0o600)
	since := w.now(t, w.web1)
	o := w.deploy(t, "many", settings)
	for _, node := range nodes {
		o.want(t, node, verdict.HostKeyRefused, "expected: ED25519 SHA256:", "DEPLOY_SSH_NODES nodes."+node+".hostKey", "shown:    ED25519 ")
	}
	if n := w.authRequests(t, w.web1, since); n != 0 {
		t.Errorf("sshd saw %d login requests, want none", n)
	}
	if n := w.logged(t, w.web1, since, "Connection from"); n != len(nodes) {
		t.Errorf("sshd saw %d connections, want %d: the refusals prove nothing", n, len(nodes))
	}
}

// The same lines in the file that the operator gave, or in node options, win over
// the pin, and every record says by what it is weakened (FR-015).
func operatorWins(t *testing.T, w *identities) {
	relay, err := w.rig.Relay(t.Context(), w.web1, 2201, rig.LinkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	w.write(t, w.rig.Deployer, "/root/real", "* "+w.key1+"\n", 0o644)
	loose := []struct {
		line    string
		weakens string // as the records say it; empty when it does not weaken
		login   bool
	}{
		{"StrictHostKeyChecking no", "StrictHostKeyChecking false", true},
		{"UserKnownHostsFile /root/real", "UserKnownHostsFile /root/real", true},
		{"GlobalKnownHostsFile /root/real", "GlobalKnownHostsFile /root/real", true},
		{"NoHostAuthenticationForLocalhost yes", "NoHostAuthenticationForLocalhost yes", true},
		{"KnownHostsCommand /bin/cat /root/real", "KnownHostsCommand /bin/cat /root/real", true},
		{"VerifyHostKeyDNS yes", "VerifyHostKeyDNS true", false},
		{"UpdateHostKeys yes", "UpdateHostKeys true", false},
		{"HostKeyAlias real", "", false},
	}
	for _, place := range []string{"file", "options"} {
		t.Run(place, func(t *testing.T) {
			config, flags := "", ""
			nodes := map[string]any{}
			for i, l := range loose {
				name := fmt.Sprintf("k%d", i)
				way := []string{"HostName=127.0.0.1", fmt.Sprintf("Port=%d", relay.Port)}
				if place == "options" {
					way = append(way, strings.Replace(l.line, " ", "=", 1))
				}
				config += "Host " + name + "\n    " + l.line + "\n"
				nodes[name] = map[string]any{"hostKey": otherKey, "options": way}
			}
			if place == "file" {
				w.write(t, w.rig.Deployer, "/root/client.conf", config, 0o600)
				flags = "-F /root/client.conf"
			}
			settings, err := json.Marshal(map[string]any{"nodes": nodes})
			if err != nil {
				t.Fatal(err)
			}
			o := w.deploy(t, "some", string(settings), flags)
			for i, l := range loose {
				name := fmt.Sprintf("k%d", i)
				by := "options[2]"
				if place == "file" {
					by = "client configuration /root/client.conf"
				}
				// All lead to one machine, so the second login finds the first one's.
				got := o.results[name].Verdict
				if login := got == verdict.Unchanged || got == verdict.WrongHost; login != l.login {
					t.Errorf("%s: %s (%s), want a login: %v", l.line, got, o.results[name].Reason, l.login)
				}
				weakened := fmt.Sprintf("the pinned host key is weakened by %s (%s)", l.weakens, by)
				for _, r := range o.records {
					var notes []string
					switch {
					case r.Phase != nil && r.Phase.Node == name:
						notes = r.Phase.Notes
					case r.Result != nil && r.Result.Node == name:
						notes = r.Result.Notes
					default:
						continue
					}
					if said := strings.Contains(strings.Join(notes, "\n"), weakened); said != (l.weakens != "") {
						t.Errorf("%s: a record says that the pin is weakened: %v; want %v: %+v %+v", l.line, said, l.weakens != "", r.Phase, r.Result)
					}
				}
			}
		})
	}
}

// A pin holds whatever the name, the port and the alias are (case 4).
func pinHolds(t *testing.T, w *identities) {
	nodes := map[string]any{}
	ways := [][]string{
		{"Port=2201", "HostName=web1"},
		{"Port=2201", "HostName=" + w.web1.Addr},
		{"Port=2201", "HostName=web1", "HostKeyAlias=something"},
		{"Port=2201", "HostName=web1", "HashKnownHosts=yes"},
		{"Port=2201", "HostName=" + w.web1.Addr6, "HostKeyAlias=x", "HashKnownHosts=yes", "CheckHostIP=yes"},
	}
	for i, way := range ways {
		nodes[fmt.Sprintf("k%d", i)] = map[string]any{"hostKey": otherKey + "\n" + w.key1, "options": way}
	}
	settings, err := json.Marshal(map[string]any{"nodes": nodes})
	if err != nil {
		t.Fatal(err)
	}
	all := w.deploy(t, "some", string(settings))
	for i, way := range ways {
		if got, want := all.detail(fmt.Sprintf("k%d", i)), "connected, host key as pinned"; got != want {
			t.Errorf("%q: the record says %q, want %q\n%s", way, got, want, all.Stderr)
		}
	}
	// The operator's file may rewrite the name, which is said.
	w.write(t, w.rig.Deployer, "/root/client.conf", "Host web1\n    HostName "+w.web1.Addr+"\n    Port 2201\n    HostKeyAlias y\n", 0o600)
	o := w.deploy(t, "web1", pinned("web1", w.key1), "-F /root/client.conf")
	o.want(t, "web1", verdict.Unchanged)
	o.noted(t, "web1", fmt.Sprintf("web1 leads to %s (HostName, client configuration /root/client.conf)", w.web1.Addr))
	// Nothing of the pin is left.
	if left := w.sh(t, w.rig.Deployer, "ls -d /tmp/deploy-ssh.* 2>/dev/null; true"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// A first key is taken and saved, another one later is refused with both named,
// and after the line was removed it is taken again.
func savedKeys(t *testing.T, w *identities) {
	const saved = "/root/.ssh/deploy-ssh.known_hosts"
	key := `{"defaults": {"key": "/root/.ssh/id_ed25519"}, "nodes": {"web1": {"options": ["Port=2201", "HostKeyAlias=one"]}}}`
	o := w.deploy(t, "web1", key)
	o.want(t, "web1", verdict.Unchanged)
	if want := "trusted on first use, saved in " + saved; !strings.Contains(o.detail("web1"), want) {
		t.Errorf("the record says %q, want %q", o.detail("web1"), want)
	}
	o = w.deploy(t, "web1", key)
	if want := "as saved in " + saved; !strings.Contains(o.detail("web1"), want) {
		t.Errorf("the second record says %q, want %q", o.detail("web1"), want)
	}
	// The host is installed again, with another key.
	other := strings.Replace(key, `"Port=2201"`, fmt.Sprintf(`"Port=2202", "HostName=%s"`, w.web2.Addr), 1)
	since := w.now(t, w.web2)
	o = w.deploy(t, "web1", other)
	fingerprint := func(h *rig.Host) string {
		return strings.Fields(w.sh(t, h, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"))[1]
	}
	o.want(t, "web1", verdict.HostKeyRefused,
		"expected: ED25519 "+fingerprint(w.web1)+" ("+saved+" line 1)", "shown:    ED25519 "+fingerprint(w.web2),
		"remove line 1 of "+saved)
	if n := w.authRequests(t, w.web2, since); n != 0 {
		t.Errorf("sshd saw %d login requests, want none", n)
	}
	// What the error says to do works.
	_, command, _ := strings.Cut(o.results["web1"].Reason, "known_hosts: ssh-keygen")
	command, _, _ = strings.Cut(command, "\n")
	w.sh(t, w.rig.Deployer, "ssh-keygen"+command)
	w.deploy(t, "web1", other).want(t, "web1", verdict.Unchanged)
}

// Where saved keys live: beside the key, else in the kept temporary folder, else in
// ssh's own file. What could not be saved is said.
func savedPlaces(t *testing.T, w *identities) {
	d := w.rig.Deployer
	w.sh(t, d, "mkdir -p /root/ro && cp /root/.ssh/id_ed25519 /root/ro/ && mount --bind /root/ro /root/ro && mount -o remount,bind,ro /root/ro")
	defer w.sh(t, d, "umount /root/ro")
	for _, tt := range []struct{ name, env, key, want string }{
		{"beside the key", "", "/root/.ssh/id_ed25519", "/root/.ssh/deploy-ssh.known_hosts"},
		{"no key file", "", "", "/tmp/deploy-ssh-0/known_hosts"},
		{"a key in a folder that can't be written", "", "/root/ro/id_ed25519", "/tmp/deploy-ssh-0/known_hosts"},
		{"TMPDIR", "TMPDIR=/var/tmp", "/root/ro/id_ed25519", "/var/tmp/deploy-ssh-0/known_hosts"},
		{"nothing can be written", "TMPDIR=/root/ro", "/root/ro/id_ed25519", "/root/.ssh/known_hosts"},
		{"somebody else's folder", "TMPDIR=/root/theirs", "", "/root/.ssh/known_hosts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.fresh(t)
			w.sh(t, d, "mkdir -p /root/theirs/deploy-ssh-0 && chown 7 /root/theirs/deploy-ssh-0")
			w.write(t, d, "/root/settings.json", options("web1", "Port=2201"), 0o644)
			o := w.program(t, tt.env+` DEPLOY_SSH_KEY=`+tt.key+` DEPLOY_SSH_NODES="$(cat /root/settings.json)"`, ".#web1")
			if want := "saved in " + tt.want; !strings.Contains(o.Stderr, want) || o.Code != 0 {
				t.Errorf("exit code %d, want 0 and %q:\n%s", o.Code, want, o.Stderr)
			}
			if saved := w.sh(t, d, "cat "+tt.want); !strings.Contains(saved, w.key1) {
				t.Errorf("%s does not have the key: %s", tt.want, saved)
			}
		})
	}
	t.Run("not even ssh's own", func(t *testing.T) {
		w.fresh(t)
		w.write(t, d, "/root/settings.json", options("web1", "Port=2201", "UserKnownHostsFile=/root/ro/known_hosts"), 0o644)
		o := w.program(t, `DEPLOY_SSH_NODES="$(cat /root/settings.json)"`, ".#web1")
		if want := "could not be saved in /root/ro/known_hosts"; !strings.Contains(o.Stderr, want) || o.Code != 0 {
			t.Errorf("exit code %d, want 0 and %q:\n%s", o.Code, want, o.Stderr)
		}
	})
}

// What the user's own known_hosts knows can't be replaced by a first use.
func takenOver(t *testing.T, w *identities) {
	d := w.rig.Deployer
	for _, tt := range []struct{ name, line, prepare string }{
		{"plain", "[web1]:2201 " + otherKey, ""},
		{"hashed", "[web1]:2201 " + otherKey, "ssh-keygen -q -H -f /root/.ssh/known_hosts; rm -f /root/.ssh/known_hosts.old; ! grep -q web1 /root/.ssh/known_hosts"},
		{"after garbage", "garbage\n\n# x\n[web1]:2201 " + otherKey, ""},
		{"in another file", "[web1]:2201 " + otherKey, "mv /root/.ssh/known_hosts /root/mine; echo 'UserKnownHostsFile /root/mine' >/root/.ssh/config"},
		{"an authority", "@cert-authority *:2201,*]:2201 " + otherKey, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.fresh(t)
			w.write(t, d, "/root/.ssh/known_hosts", tt.line+"\n", 0o600)
			if tt.prepare != "" {
				w.sh(t, d, tt.prepare)
			}
			since := w.now(t, w.web1)
			o := w.deploy(t, "web1", options("web1", "Port=2201"))
			o.want(t, "web1", verdict.HostKeyRefused, "shown:    ED25519 ")
			if n := w.authRequests(t, w.web1, since); n != 0 {
				t.Errorf("sshd saw %d login requests, want none", n)
			}
		})
	}
	t.Run("the right one", func(t *testing.T) {
		w.fresh(t)
		w.write(t, d, "/root/.ssh/known_hosts", "[web1]:2201 "+w.key1+"\n", 0o600)
		o := w.deploy(t, "web1", options("web1", "Port=2201"))
		o.want(t, "web1", verdict.Unchanged)
		o.noted(t, "web1", "the host key of [web1]:2201 was taken over from /root/.ssh/known_hosts into /tmp/deploy-ssh-0/known_hosts")
	})
}

// A relay to another machine gets no login and not a byte of the closure.
func manInTheMiddle(t *testing.T, w *identities) {
	honest, err := w.rig.Relay(t.Context(), w.web1, 2201, rig.LinkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer honest.Close()
	evil, err := w.rig.Relay(t.Context(), w.web2, 2202, rig.LinkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer evil.Close()
	over := func(r *rig.Relay) []string {
		return []string{"HostName=127.0.0.1", fmt.Sprintf("Port=%d", r.Port), "HostKeyAlias=web1"}
	}
	w.deploy(t, "web1", options("web1", over(honest)...)).want(t, "web1", verdict.Unchanged)
	for name, settings := range map[string]string{
		"after a first use": options("web1", over(evil)...),
		"with a pin":        pinned("web1", w.key1, over(evil)...),
	} {
		t.Run(name, func(t *testing.T) {
			since, sent := w.now(t, w.web2), evil.Sent()
			o := w.deploy(t, fresh(0), settings)
			o.want(t, "web1", verdict.HostKeyRefused)
			if n := w.authRequests(t, w.web2, since); n != 0 {
				t.Errorf("the man in the middle saw %d login requests, want none", n)
			}
			// A key exchange is some kilobytes; the closure is a hundred and more.
			if n := evil.Sent() - sent; n == 0 || n > 20_000 {
				t.Errorf("the man in the middle got %d bytes, want those of a key exchange", n)
			}
		})
	}
}

// Pins can be required: nodes without one that holds are refused and not contacted.
func requirePins(t *testing.T, w *identities) {
	since1, since2 := w.now(t, w.web1), w.now(t, w.web2)
	o := w.deploy(t, "both", `{"nodes": {"web1": {"options": ["Port=2201"], "hostKey": "`+w.key1+`"}, "web2": {"options": ["Port=2202"]}}}`, "--require-pins")
	o.want(t, "web1", verdict.Unchanged)
	o.want(t, "web2", verdict.Unpinned, "trusted on first use")
	if o.Code != 1 {
		t.Errorf("exit code %d, want 1", o.Code)
	}
	o = w.deploy(t, "web2", pinned("web2", w.key2, "Port=2202", "StrictHostKeyChecking=no"), "--require-pins")
	o.want(t, "web2", verdict.Unpinned, "weakened by StrictHostKeyChecking false (options[1])")
	if n := w.logged(t, w.web2, since2, "Connection from"); n != 0 {
		t.Errorf("the node without a pin was contacted %d times", n)
	}
	if n := w.logged(t, w.web1, since1, "Connection from"); n != 1 {
		t.Errorf("the pinned node was contacted %d times, want once", n)
	}
}

// A host that is another one than meant is not written to.
func wrongHosts(t *testing.T, w *identities) {
	ports := `{"nodes": {"web1": {"options": ["Port=2201"]}, "web2": {"options": ["Port=2202"]}}}`
	w.deploy(t, "expected", ports[:strings.Index(ports, `, "web2"`)]+"}}").want(t, "web1", verdict.Unchanged)
	o := w.deploy(t, "unexpected", ports)
	o.want(t, "web1", verdict.WrongHost, "its host name is web1, expected web9", "expected 00000000000000000000000000000000")
	o.want(t, "web2", verdict.Unchanged)
	// Both lead to one machine.
	o = w.deploy(t, "both", `{"nodes": {"web1": {"options": ["Port=2201"]}, "web2": {"host": "web1", "options": ["Port=2201"]}}}`)
	o.want(t, "web1", verdict.Unchanged)
	o.want(t, "web2", verdict.WrongHost, "so had the host of node web1")
	for _, r := range o.records {
		if r.Phase != nil && r.Phase.Node == "web2" && r.Phase.Name == report.Copy {
			t.Error("the wrong host was copied to")
		}
	}
}
