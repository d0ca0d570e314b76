package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// One table for both entries: a fleet with its flake, and one node from the
// environment alone. Where the flake has no settings the two must agree.
func TestLayers(t *testing.T) {
	const (
		flakeDefaults = ".#nodes defaults.ssh"
		flakeNode     = ".#nodes nodes.web.ssh"
		envDefaults   = "DEPLOY_SSH_NODES defaults"
		envNode       = "DEPLOY_SSH_NODES nodes.web"
	)
	text := func(v, origin string) Value[string] { return Value[string]{v, origin} }
	list := func(origin string, v ...string) Value[[]string] { return Value[[]string]{v, origin} }
	for _, test := range []struct {
		name string
		// The flake's layers; host is the roster's.
		defaults, node SSH
		host           string
		environ        []string
		// change makes the built-in values what is wanted.
		change func(*Resolved)
	}{
		{name: "built-in: root, the deployer's own keys, the node's name"},
		{
			name: "the roster host", host: "10.0.0.2",
			change: func(r *Resolved) { r.Host = text("10.0.0.2", OriginRoster) },
		},
		{
			name: "a bracketed roster host", host: "[::1]",
			change: func(r *Resolved) { r.Host = text("::1", OriginRoster) },
		},
		{
			name:    "the environment's shared user and key",
			environ: []string{"DEPLOY_SSH_USER=ops", "DEPLOY_SSH_KEY=/k"},
			change:  func(r *Resolved) { r.User, r.Key = text("ops", KeyUser), text("/k", KeyKey) },
		},
		{
			name:    "empty variables are none",
			environ: []string{"DEPLOY_SSH_USER=", "DEPLOY_SSH_KEY=", "DEPLOY_SSH_NODES=", "DEPLOY_SSH_CONFIG="},
		},
		{
			name:    "the map's defaults win over the shared user and key",
			environ: []string{"DEPLOY_SSH_USER=ops", "DEPLOY_SSH_KEY=/k", `DEPLOY_SSH_NODES={"defaults":{"user":"d","key":"/d","options":["Port=1"]}}`},
			change: func(r *Resolved) {
				r.User, r.Key, r.Options = text("d", envDefaults), text("/d", envDefaults), list(envDefaults, "Port=1")
			},
		},
		{
			name: "the map's node entry wins over its defaults, field by field", host: "r",
			environ: []string{`DEPLOY_SSH_NODES={"defaults":{"user":"d","key":"/d","options":["Port=1","Compression=yes"]},
				"nodes":{"web":{"host":"[fe80::1%eth0]","user":"n","hostKey":"` + keyB + ` c\n` + keyA + `","options":["Port=2"]},"db":{"user":"x"}}}`},
			change: func(r *Resolved) {
				r.Host, r.User, r.Key = text("fe80::1%eth0", envNode), text("n", envNode), text("/d", envDefaults)
				r.HostKeys, r.Options = list(envNode, keyB, keyA), list(envNode, "Port=2")
			},
		},
		{
			name: "empty and null fields of an entry inherit", host: "r",
			environ: []string{"DEPLOY_SSH_USER=ops", `DEPLOY_SSH_NODES={"defaults":{"user":"","key":null,"options":["Port=1"]},
				"nodes":{"web":{"host":"","user":null,"key":"","hostKey":"","options":[]},"db":null}}`},
			change: func(r *Resolved) {
				r.Host, r.User, r.Options = text("r", OriginRoster), text("ops", KeyUser), list(envDefaults, "Port=1")
			},
		},
		{
			name:    "null layers inherit",
			environ: []string{"DEPLOY_SSH_USER=ops", `DEPLOY_SSH_NODES={"defaults":null,"nodes":null}`},
			change:  func(r *Resolved) { r.User = text("ops", KeyUser) },
		},
		{
			name:     "the flake's defaults win over the shared user and key",
			defaults: SSH{User: "d", Key: "/d"},
			environ:  []string{"DEPLOY_SSH_USER=ops", "DEPLOY_SSH_KEY=/k"},
			change:   func(r *Resolved) { r.User, r.Key = text("d", flakeDefaults), text("/d", flakeDefaults) },
		},
		{
			name:     "the flake's node entry wins over its defaults",
			defaults: SSH{User: "d", Key: "/d", Options: []string{"Port=1", "Compression=yes"}},
			node:     SSH{Host: "h", User: "n", HostKey: keyA, Options: []string{"Port=3"}}, host: "r",
			change: func(r *Resolved) {
				r.Host, r.User, r.Key = text("h", flakeNode), text("n", flakeNode), text("/d", flakeDefaults)
				r.HostKeys, r.Options = list(flakeNode, keyA), list(flakeNode, "Port=3")
			},
		},
		{
			name:     "the map's defaults overlay the flake's, below every node entry",
			defaults: SSH{User: "d", Key: "/d", Options: []string{"Port=1"}}, node: SSH{User: "n"},
			environ: []string{`DEPLOY_SSH_NODES={"defaults":{"user":"ed","options":["Port=2"]}}`},
			change: func(r *Resolved) {
				r.User, r.Key, r.Options = text("n", flakeNode), text("/d", flakeDefaults), list(envDefaults, "Port=2")
			},
		},
		{
			name: "the map's node entry overlays the flake's",
			node: SSH{Host: "h", User: "n", Key: "/n", HostKey: keyA, Options: []string{"Port=3", "Compression=yes"}}, host: "r",
			environ: []string{`DEPLOY_SSH_NODES={"nodes":{"web":{"host":"::2","hostKey":"` + keyB + `","options":["Port=4"]}}}`},
			change: func(r *Resolved) {
				r.Host, r.User, r.Key = text("::2", envNode), text("n", flakeNode), text("/n", flakeNode)
				r.HostKeys, r.Options = list(envNode, keyB), list(envNode, "Port=4")
			},
		},
		{
			name:     "empty fields of the flake inherit",
			defaults: SSH{User: "d", Options: []string{"Port=1"}}, node: SSH{Options: []string{}}, host: "r",
			change: func(r *Resolved) {
				r.Host, r.User, r.Options = text("r", OriginRoster), text("d", flakeDefaults), list(flakeDefaults, "Port=1")
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			env, err := ParseEnvironment(append([]string{"PATH=/bin", "HOME=/root"}, test.environ...))
			if err != nil {
				t.Fatal(err)
			}
			want := Resolved{
				Host: text("web", OriginNodeName), User: text("root", OriginBuiltIn), Key: text("", OriginBuiltIn),
				HostKeys: list(OriginBuiltIn, []string{}...), Options: list(OriginBuiltIn, []string{}...),
			}
			if test.change != nil {
				test.change(&want)
			}
			flake := Flake{Source: ".#nodes", Defaults: test.defaults, Nodes: []Node{
				{Name: "web", Host: test.host, SSH: test.node}, {Name: "db"},
			}}
			fleet, err := Resolve(flake, env)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, fleet[0], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the fleet: -want +got\n%s", diff)
			}
			if fleet[0].HostKeys.V == nil || fleet[0].Options.V == nil {
				t.Errorf("a list is null in JSON: %+v", fleet[0])
			}
			if !cmp.Equal(test.defaults, SSH{}) || !cmp.Equal(test.node, SSH{}, cmpopts.EquateEmpty()) {
				return
			}
			one, err := ResolveOne("web", test.host, env)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fleet[0], one); diff != "" {
				t.Errorf("-in the fleet +alone\n%s", diff)
			}
		})
	}
}

func TestResolveOneRefuses(t *testing.T) {
	for _, test := range []struct {
		name, host string
		env        Environment
		want       string
	}{
		{"a b", "", Environment{}, `the node "a b": wanted a name of letters`},
		{"web", "web:22", Environment{}, `nodes.web.host: "web:22": has a port`},
		{"web", "", Environment{Defaults: SSH{Options: []string{"-v"}}}, `DEPLOY_SSH_NODES defaults.options[0]: "-v": is in command-line form`},
		{"web", "", Environment{Nodes: map[string]SSH{"web": {HostKey: "x"}}}, "DEPLOY_SSH_NODES nodes.web.hostKey: this is no public key line"},
	} {
		_, err := ResolveOne(test.name, test.host, test.env)
		var bad *Error
		if !errors.As(err, &bad) || len(bad.Problems) != 1 || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}

func manyNodes(n int) (Flake, []byte) {
	flake := Flake{Source: ".#nodes", Defaults: SSH{User: "deploy", Options: []string{"Port=2222"}}}
	entries := map[string]SSH{}
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		flake.Nodes = append(flake.Nodes, Node{Name: name, Host: "10.0.0.1", SSH: SSH{HostKey: keyA + " c", Options: []string{"Port=22", "ProxyJump=gw"}}})
		entries[name] = SSH{User: "u", Options: []string{"Port=23"}}
	}
	text, _ := json.Marshal(map[string]any{"nodes": entries})
	return flake, text
}

func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		flake, text := manyNodes(n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				env, err := ParseEnvironment([]string{KeyNodes + "=" + string(text)})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := Resolve(flake, env); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Entries for another flake's nodes: nobody is to wait for the spelling hints.
func BenchmarkResolveUnknownNodes(b *testing.B) {
	flake, text := manyNodes(1000)
	for i := range flake.Nodes {
		flake.Nodes[i].Name = fmt.Sprintf("db-%d", i)
	}
	env, err := ParseEnvironment([]string{KeyNodes + "=" + string(text)})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Resolve(flake, env); err == nil {
			b.Fatal("no error")
		}
	}
}

func TestResolveReportsEverything(t *testing.T) {
	flake := Flake{
		Source:   ".#nodes",
		Defaults: SSH{Options: []string{"Port=1", "logLevel=QUIET"}},
		Nodes: []Node{
			{Name: "web", Host: "a b", SSH: SSH{HostKey: "web.example " + keyA}},
			{Name: "db", SSH: SSH{User: "-x"}},
		},
	}
	env := Environment{Nodes: map[string]SSH{"wbe": {User: "u"}, "db": {Options: []string{"-p 22"}}}}
	_, err := Resolve(flake, env)
	var all *Error
	if !errors.As(err, &all) {
		t.Fatalf("got %v", err)
	}
	var places []string
	for _, p := range all.Problems {
		places = append(places, p.Source+" "+p.Path)
	}
	want := []string{
		"DEPLOY_SSH_NODES nodes.wbe",
		".#nodes defaults.ssh.options[1]",
		".#nodes nodes.web.host",
		".#nodes nodes.web.ssh.hostKey",
		".#nodes nodes.db.ssh.user",
		"DEPLOY_SSH_NODES nodes.db.options[0]",
	}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got, want := all.Problems[0].String(), `DEPLOY_SSH_NODES nodes.wbe: the flake has no such node; did you mean "web"?`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
