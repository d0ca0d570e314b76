package settings

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	keyA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAeSTrPt2ByS4ek2PVJ8VMD7Ng7VvHEDK1nqbzB7vWkZ"
	keyB = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHzmo2tLAXnzQWUqvoCfbV6xQzWA6Rm7nGhT6C2qRp3k"
)

func one(defaults, node SSH, host string) Flake {
	return Flake{Source: ".#nodes", Defaults: defaults, Nodes: []Node{{Name: "web", Host: host, SSH: node}}}
}

func TestResolveLayers(t *testing.T) {
	const (
		flakeDefaults = ".#nodes defaults.ssh"
		flakeNode     = ".#nodes nodes.web.ssh"
		envDefaults   = "DEPLOY_SSH_NODES defaults"
		envNode       = "DEPLOY_SSH_NODES nodes.web"
	)
	base := func(change func(*Resolved)) Resolved {
		r := Resolved{
			Host:     Value[string]{"web", OriginNodeName},
			User:     Value[string]{"root", OriginBuiltIn},
			Key:      Value[string]{"", OriginBuiltIn},
			HostKeys: Value[[]string]{[]string{}, OriginBuiltIn},
			Options:  Value[[]string]{[]string{}, OriginBuiltIn},
		}
		change(&r)
		return r
	}
	for _, test := range []struct {
		name  string
		flake Flake
		env   Environment
		want  Resolved
	}{
		{
			name:  "built-in values and the node's name",
			flake: one(SSH{}, SSH{}, ""),
			want:  base(func(*Resolved) {}),
		},
		{
			name:  "the roster host",
			flake: one(SSH{}, SSH{}, "10.0.0.2"),
			want:  base(func(r *Resolved) { r.Host = Value[string]{"10.0.0.2", OriginRoster} }),
		},
		{
			name:  "the environment's user and key are below all layers",
			flake: one(SSH{}, SSH{}, ""),
			env:   Environment{User: "ops", Key: "/k"},
			want: base(func(r *Resolved) {
				r.User = Value[string]{"ops", KeyUser}
				r.Key = Value[string]{"/k", KeyKey}
			}),
		},
		{
			name:  "shared defaults win over the environment's user and key",
			flake: one(SSH{User: "d", Key: "/d"}, SSH{}, ""),
			env:   Environment{User: "ops", Key: "/k"},
			want: base(func(r *Resolved) {
				r.User = Value[string]{"d", flakeDefaults}
				r.Key = Value[string]{"/d", flakeDefaults}
			}),
		},
		{
			name:  "the node entry wins over the environment's defaults",
			flake: one(SSH{User: "d", Options: []string{"Port=1"}}, SSH{User: "n"}, ""),
			env:   Environment{Defaults: SSH{User: "ed", Options: []string{"Port=2"}}},
			want: base(func(r *Resolved) {
				r.User = Value[string]{"n", flakeNode}
				r.Options = Value[[]string]{[]string{"Port=2"}, envDefaults}
			}),
		},
		{
			name:  "the environment overlays the node entry field by field",
			flake: one(SSH{}, SSH{Host: "h", User: "n", Key: "/n", HostKey: keyA, Options: []string{"Port=3", "Compression=yes"}}, "r"),
			env: Environment{Nodes: map[string]SSH{"web": {
				Host: "[fe80::1%eth0]", HostKey: keyB + " a comment\n" + keyA, Options: []string{"Port=4"},
			}}},
			want: base(func(r *Resolved) {
				r.Host = Value[string]{"fe80::1%eth0", envNode}
				r.User = Value[string]{"n", flakeNode}
				r.Key = Value[string]{"/n", flakeNode}
				r.HostKeys = Value[[]string]{[]string{keyB, keyA}, envNode}
				r.Options = Value[[]string]{[]string{"Port=4"}, envNode}
			}),
		},
		{
			name:  "empty fields inherit, an empty list too",
			flake: one(SSH{User: "d", Options: []string{"Port=1"}}, SSH{User: "", Options: []string{}}, "r"),
			env:   Environment{Nodes: map[string]SSH{"web": {Host: "", Options: nil}}},
			want: base(func(r *Resolved) {
				r.Host = Value[string]{"r", OriginRoster}
				r.User = Value[string]{"d", flakeDefaults}
				r.Options = Value[[]string]{[]string{"Port=1"}, flakeDefaults}
			}),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Resolve(test.flake, test.env)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]Resolved{test.want}, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
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
		".#nodes nodes.web.ssh.hostKey",
		".#nodes nodes.web.host",
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
