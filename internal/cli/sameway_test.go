package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

func TestNoteSameWay(t *testing.T) {
	way := func(host, port, command string, hops ...ssh.Hop) *ssh.Identity {
		return &ssh.Identity{Hops: hops, Effective: ssh.Effective{"hostname": {host}, "port": {port}, "proxycommand": {command}}}
	}
	identities := map[string]*ssh.Identity{
		"a":       way("web", "22", ""),
		"port":    way("web", "2222", ""),
		"copy":    way("WEB", "22", "none"),
		"third":   way("web", "22", ""),
		"jump":    way("web", "22", "", ssh.Hop{Host: "gw"}),
		"jump2":   way("web", "22", "", ssh.Hop{Host: "gw"}),
		"command": way("web", "22", "connect %n"),
	}
	var nodes []plan.Node
	for _, name := range []string{"a", "port", "copy", "third", "jump", "jump2", "command", "does-not-evaluate"} {
		nodes = append(nodes, plan.Node{Name: name})
	}
	noteSameWay(nodes, identities)
	got := map[string][]string{}
	for name, id := range identities {
		if id.Notes != nil {
			got[name] = id.Notes
		}
	}
	want := map[string][]string{
		"copy":  {"it has the address of node a, web port 22"},
		"third": {"it has the address of node a, web port 22"},
		"jump2": {"it has the address of node jump, web port 22"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}
