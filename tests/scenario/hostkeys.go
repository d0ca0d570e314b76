package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// settings is a node map for the environment.
type settings map[string]entry

// entry is the SSH settings of a node; empty fields inherit.
type entry struct {
	Host    string   `json:"host,omitempty"`
	HostKey string   `json:"hostKey,omitempty"`
	Options []string `json:"options,omitempty"`
}

// env is the variable as it goes in front of the program.
func (s settings) env() (string, error) {
	text, err := json.Marshal(map[string]any{"nodes": s})
	if err != nil {
		return "", err
	}
	// Neither a key nor an option of these has a quote.
	return "DEPLOY_SSH_NODES='" + string(text) + "'", nil
}

// hostKey is a target's public key, without the comment.
func hostKey(ctx context.Context, t Target) (string, error) {
	return say(ctx, t, "cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub")
}

// Pins deploys with each target's key pinned, which changes nothing; then with a
// pin for the first that is another host's: there is no login on it, and the next
// node is deployed all the same.
func Pins(ctx context.Context, w World) error {
	pins := settings{}
	keys := make([]string, len(w.Targets))
	for i, t := range w.Targets {
		var err error
		if keys[i], err = hostKey(ctx, t); err != nil {
			return err
		}
		pins[t.Node] = entry{HostKey: keys[i]}
	}
	env, err := pins.env()
	if err != nil {
		return err
	}
	r, err := w.recordsIn(ctx, "nodes", env, "--require-pins")
	if err != nil {
		return err
	}
	if err := r.exit(0); err != nil {
		return err
	}
	for _, t := range w.Targets {
		if detail := r.connected(t.Node); detail != "connected, host key as pinned" {
			return fmt.Errorf("%s: the record of the connection says %q", t.Node, detail)
		}
	}

	first, second := w.Targets[0], w.Targets[1]
	pins[first.Node] = entry{HostKey: keys[1]}
	if env, err = pins.env(); err != nil {
		return err
	}
	since, err := now(ctx, first)
	if err != nil {
		return err
	}
	if r, err = w.recordsIn(ctx, "nodes", env); err != nil {
		return err
	}
	if err := r.verdicts(map[string]verdict.Verdict{first.Node: verdict.HostKeyRefused, second.Node: verdict.Unchanged}); err != nil {
		return err
	}
	if err := r.exit(1); err != nil {
		return err
	}
	logins, err := logged(ctx, first, since, "^(Accepted|Failed|Postponed) ")
	if err != nil {
		return err
	}
	connections, err := logged(ctx, first, since, "^Connection from ")
	if err != nil {
		return err
	}
	if logins != "0" || connections != "1" {
		return fmt.Errorf("%s: with another host's pin there were %s connections and %s tries to log in, want one and none", first.Node, connections, logins)
	}
	return nil
}

// connected is what the connect phase of a node came to.
func (r run) connected(node string) string {
	for _, record := range r.Records {
		if p := record.Phase; p != nil && p.Node == node && p.Name == report.Connect {
			return p.Detail
		}
	}
	return ""
}

// onlookingSSH makes a folder that has not seen a host yet, and an ssh that stands first in PATH: it writes down what ssh makes of each call's
// arguments, and is then ssh, by its bare name: so jumps find this one in PATH, too.
const onlookingSSH = `mkdir -p /root/onlooking && rm -rf /root/onlooking/calls && mkdir /root/onlooking/calls && cat >/root/onlooking/ssh <<END
#!/usr/bin/env bash
case " \$* " in *" -G "*) ;; *) $(command -v ssh) -G "\$@" </dev/null >\$(mktemp /root/onlooking/calls/XXXXXXXX) 2>/dev/null ;; esac
exec -a ssh $(command -v ssh) "\$@"
END
chmod +x /root/onlooking/ssh
rm -rf /root/onlooking/tmp; mkdir -m 700 /root/onlooking/tmp`

// HostKeys looks at the effective options of every connection of a deploy, with a
// pinned key and without, with a host-key option in the node's options and in the
// client configuration, straight and through a jump host.
func HostKeys(ctx context.Context, w World) error {
	node, hop := w.Targets[0], w.Targets[1]
	key, err := hostKey(ctx, node)
	if err != nil {
		return err
	}
	// The hop may not know the node's name.
	address, err := say(ctx, w.Deployer, fmt.Sprintf("getent ahostsv4 %s | head -n 1 | cut -d' ' -f1", node.Host))
	if err != nil {
		return err
	}
	port := fmt.Sprintf("Port=%d", node.Port)
	jump := []string{port, "HostName=" + address, fmt.Sprintf("ProxyJump=root@%s:%d", hop.Host, hop.Port)}
	for _, c := range []struct {
		what   string
		entry  entry
		config string // the client configuration
		// checking is StrictHostKeyChecking for the node; pinned says that its
		// known hosts are the pin's file.
		checking     string
		pinned, hops bool
	}{
		{"first use", entry{Options: []string{port}}, "", "accept-new", false, false},
		{"a pin", entry{HostKey: key, Options: []string{port}}, "", "true", true, false},
		{"a pin and an option", entry{HostKey: key, Options: []string{port, "StrictHostKeyChecking=no"}}, "", "false", true, false},
		{"a pin and the client configuration", entry{HostKey: key, Options: []string{port}}, "Host " + node.Host + "\n    StrictHostKeyChecking no\n", "false", true, false},
		{"first use through a jump host", entry{Options: jump}, "", "accept-new", false, true},
		{"a pin through a jump host", entry{HostKey: key, Options: jump}, "", "true", true, true},
	} {
		if err := w.effective(ctx, node, hop, c.entry, c.config, c.checking, c.pinned, c.hops); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

func (w World) effective(ctx context.Context, node, hop Target, settled entry, config, checking string, pinned, hops bool) error {
	const configFile = "/root/onlooking/client.conf"
	if _, err := say(ctx, w.Deployer, onlookingSSH+"\nprintf '%s' '"+config+"' >"+configFile); err != nil {
		return err
	}
	env, err := settings{node.Node: settled}.env()
	if err != nil {
		return err
	}
	r, err := w.recordsIn(ctx, "nodes", env+" TMPDIR=/root/onlooking/tmp PATH=/root/onlooking:$PATH", "--on "+node.Node, "-F "+configFile)
	if err != nil {
		return err
	}
	if err := r.verdicts(map[string]verdict.Verdict{node.Node: verdict.Unchanged}); err != nil {
		return err
	}
	calls, err := say(ctx, w.Deployer, `cd /root/onlooking/calls; for call in *; do echo "==> $call"; cat $call; done`)
	if err != nil {
		return err
	}
	seen := map[string]int{}
	for _, call := range strings.Split(calls, "==> ")[1:] {
		e := effectiveOptions(call)
		for key, want := range map[string]string{"batchmode": "yes", "permitlocalcommand": "no", "controlpersist": "no", "loglevel": "INFO"} {
			if e[key] != want {
				return fmt.Errorf("an ssh to %s has %s %q, want %q", e["host"], key, e[key], want)
			}
		}
		switch {
		case e["host"] == node.Host:
			seen["node"]++
			if e["stricthostkeychecking"] != checking || strings.HasSuffix(e["userknownhostsfile"], "/pin") != pinned {
				return fmt.Errorf("the node's key is checked %q against %s; want %q, against the pin: %v", e["stricthostkeychecking"], e["userknownhostsfile"], checking, pinned)
			}
		case e["host"] == hop.Host && hops:
			seen["hop"]++
			if e["stricthostkeychecking"] != "accept-new" || strings.HasSuffix(e["userknownhostsfile"], "/pin") {
				return fmt.Errorf("the hop's key is checked %q against %s; want accept-new against the saved keys", e["stricthostkeychecking"], e["userknownhostsfile"])
			}
		case e["proxycommand"] == "false":
			seen["rider"]++ // rides on the connection and can't dial
			continue
		default:
			return fmt.Errorf("an ssh to somewhere else: %s port %s", e["host"], e["port"])
		}
		if e["globalknownhostsfile"] != "/dev/null" || e["nohostauthenticationforlocalhost"] != "no" {
			return fmt.Errorf("an ssh to %s could take another file's word for its key: %v", e["host"], e)
		}
	}
	if seen["node"] == 0 || hops != (seen["hop"] > 0) {
		return fmt.Errorf("the connections seen are %v, want some to the node, and hops: %v", seen, hops)
	}
	return nil
}

// effectiveOptions is what `ssh -G` prints, the first value of each keyword.
func effectiveOptions(text string) map[string]string {
	options := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if _, ok := options[key]; !ok {
			options[key] = value
		}
	}
	return options
}
