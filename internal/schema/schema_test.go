package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/nix"
	"github.com/google/go-cmp/cmp"
)

const head = `"version":1,"ordered":true,"problems":[],"unmatched":[]`

func TestCheckContract(t *testing.T) {
	for _, test := range []struct {
		name, document string
		want           []string
	}{
		{
			name:     "complete",
			document: `{` + head + `,"defaults":{"ssh":{"user":"u","options":["Port=1"]}},"nodes":[{"name":"web","selected":true,"host":"h","tags":["a"],"ssh":{"hostKey":"# none yet"},"toplevel":"/nix/store/x","drvPath":null,"system":null}]}`,
		},
		{
			name:     "unknown fields everywhere",
			document: `{` + head + `,"noeds":null,"defaults":{"user":null,"ssh":{"hostKey":null}},"nodes":[{"name":"web","selected":true,"hots":null,"ssh":{"option":null}}]}`,
			want: []string{
				`defaults.ssh.hostKey: unknown field "hostKey" (known: key, options, user)`,
				`defaults.user: unknown field "user"; write ssh.user (known: elevate, ssh)`,
				`nodes[0].hots: unknown field "hots"; did you mean "host"? (known: elevate, expect, host, ignoreUnits, name, ssh, tags, toplevel)`,
				`nodes[0].ssh.option: unknown field "option"; did you mean "options"? (known: host, hostKey, key, options, user)`,
				`noeds: unknown field "noeds"; did you mean "nodes"? (known: combined, defaults, nodes, order)`,
			},
		},
		{
			name:     "what JSON can't carry",
			document: `{` + head + `,"defaults":{},"nodes":[{"name":"web","selected":true,"ssh":{"key":{"$nix":"a Nix path"}}}]}`,
			want:     []string{`nodes[0].ssh.key: found a Nix path; wanted a string: ` + Description("key")},
		},
		{
			name:     "another version",
			document: `{"version":2,"ordered":true,"problems":[],"unmatched":[],"defaults":{},"nodes":[]}`,
			want:     []string{"version: found the number 2; wanted 1"},
		},
		{
			name:     "nothing",
			document: `{}`,
			want:     []string{": the field version, ordered, defaults, nodes, problems, unmatched is missing"},
		},
		{
			name:     "illegal names",
			document: `{` + head + `,"defaults":{},"nodes":[{"name":"-a","selected":true,"tags":["x y"]}]}`,
			want: []string{
				`nodes[0].name: "-a": wanted ` + Description("name"),
				`nodes[0].tags[0]: "x y": wanted ` + Description("name"),
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			problems, err := Check(Contract, []byte(test.document))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, Location(p.Path)+": "+p.Text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestUnknownFieldsSayWhatWasMeant(t *testing.T) {
	for _, test := range []struct{ document, want string }{
		{`{"nodes":{"web":{"hots":1}}}`, `; did you mean "host"?`},
		{`{"nodes":{"web":{"Port":1}}}`, `; write options = [ "Port=…" ]`},
		{`{"nodes":{"web":{"ProxyJump":1}}}`, `; an option of ssh_config is an item of options: options = [ "ProxyJump=…" ]`},
		{`{"nodes":{"web":{"sshOpts":1}}}`, `, as in deploy-rs; write options; bare Key=Value`},
		{`{"nodes":{"web":{"targetPort":1}}}`, `, as in colmena, morph and wire; write options = [ "Port=…" ]; the port`},
		{`{"nodes":{"web":{"profiles":1}}}`, `unknown field "profiles" (known:`},
		{`{"nodes":{"web":{"magicRollback":1}}}`, `, as in deploy-rs; write --confirm 2m; a flag`},
		{`{"nodes":{"web":{"hostname":1}}}`, `; write host`},
		{`{"nodes":{"web":{"ssh":1}}}`, `; its fields stand here without it`},
		{`{"nodes":{"web":{"zzz":1}}}`, `unknown field "zzz" (known: elevate, host, hostKey, key, options, user)`},
		{`{"nodes":{"web":{"":1}}}`, `unknown field "" (known: elevate, host, hostKey, key, options, user)`},
	} {
		problems, err := Check(Environment, []byte(test.document))
		if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Text, test.want) {
			t.Errorf("%s: got %v, %v\nwant %s", test.document, problems, err, test.want)
		}
	}
	node := `{` + head + `,"defaults":{},"nodes":[{"name":"web","selected":true,%s:null}]}`
	for field, want := range map[string]string{
		`"user"`: "; write ssh.user", `"hostKey"`: "; write ssh.hostKey", `"sshUser"`: "; write ssh.user", `"hostname"`: "; write host",
		`"targetPort"`: `; write ssh.options = [ "Port=…" ]`, `"configuration"`: "; write toplevel",
		`"targetHost"`: ", as in colmena, morph and wire; write host (known", `"sshOpts"`: "; write ssh.options; bare", `"profiles"`: ", as in deploy-rs; write toplevel; a node has one profile",
		`"deployment"`: "; its fields stand in the node itself", `"allowLocalDeployment"`: "; every node is deployed over ssh", `"autoRollback"`: "; after a failed activation",
		`"remoteBuild"`: "; write --build-on-target", `"buildOnTarget"`: "; write --build-on-target", `"targetUser"`: "; write ssh.user (known", `"sudo"`: "; write elevate",
	} {
		problems, err := Check(Contract, []byte(strings.Replace(node, "%s", field, 1)))
		if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Text, want) {
			t.Errorf("%s: got %v, %v\nwant %s", field, problems, err, want)
		}
	}
}

// In the map itself and its defaults, too.
func TestFieldsOfOthersElsewhere(t *testing.T) {
	for document, want := range map[string]string{
		`{` + head + `,"defaults":{},"nodes":[],"sshUser":null}`:      `sshUser: unknown field "sshUser", as in deploy-rs; write defaults.ssh.user (known`,
		`{` + head + `,"defaults":{},"nodes":[],"meta":null}`:         `meta: unknown field "meta", as in colmena and wire; systems are made by nixpkgs.lib.nixosSystem`,
		`{` + head + `,"defaults":{"sshUser":null},"nodes":[]}`:       `defaults.sshUser: unknown field "sshUser", as in deploy-rs; write ssh.user (known`,
		`{` + head + `,"defaults":{"targetHost":null},"nodes":[]}`:    `defaults.targetHost: unknown field "targetHost" (known`,
		`{` + head + `,"defaults":{"ssh":{"sudo":null}},"nodes":[]}`:  `defaults.ssh.sudo: unknown field "sudo" (known`,
		`{` + head + `,"defaults":{"ssh":{"port":null}},"nodes":[]}`:  `defaults.ssh.port: unknown field "port"; write options = [ "Port=…" ] (known`,
		`{` + head + `,"defaults":{"magicRollback":null},"nodes":[]}`: `write --confirm 2m`,
	} {
		problems, err := Check(Contract, []byte(document))
		if err != nil || len(problems) != 1 || !strings.Contains(Location(problems[0].Path)+": "+problems[0].Text, want) {
			t.Errorf("%s: got %v, %v\nwant %s", document, problems, err, want)
		}
	}
}

// Names that are digits are names, and only indices are in brackets.
func TestLocation(t *testing.T) {
	problems, err := Check(Environment, []byte(`{"nodes":{"5":{"options":["Port=1",5]},"a.b":{"user":5}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, Location(p.Path))
	}
	if diff := cmp.Diff([]string{"nodes.5.options[1]", `nodes."a.b".user`}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Nix (POSIX ERE), Go (RE2) and front-ends (ECMA-262) read the same patterns.
func TestPatternsAreReadAlikeEverywhere(t *testing.T) {
	var patterns []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, child := range v {
				if text, ok := child.(string); ok && key == "pattern" {
					patterns = append(patterns, text)
				}
				walk(child)
			}
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	var root any
	if err := json.Unmarshal(nix.Schema, &root); err != nil {
		t.Fatal(err)
	}
	walk(root)
	if len(patterns) < 5 {
		t.Fatalf("found only %d patterns", len(patterns))
	}
	for _, p := range patterns {
		inClass := false
		for i, r := range p {
			switch {
			case r == '\\':
				t.Errorf("%q: a backslash means something else in each dialect", p)
			case r == '[' && !inClass:
				inClass = true
			case r == ']':
				inClass = false
			case r == '.' && !inClass:
				t.Errorf("%q: a dot matches a newline in Nix", p)
			case r == '(' && !inClass && strings.HasPrefix(p[i:], "(?"):
				t.Errorf("%q: no dialect shares groups with a question mark", p)
			}
		}
		for _, class := range []string{"[[:", "[]", "[^]"} {
			if strings.Contains(p, class) {
				t.Errorf("%q: %s means something else in ECMA-262", p, class)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{` + head + `,"defaults":{},"nodes":[{"name":"web","selected":true}]}`))
	f.Add([]byte(`{"nodes":[{"ssh":{"options":[{"$nix":"a"}]}},[],null,1e400]}`))
	f.Add([]byte(`{"a":{"a":[{"b":1,"b":2}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, document := range []string{Contract, Environment} {
			problems, err := Check(document, data)
			if err == nil && !json.Valid(data) {
				t.Errorf("%q was taken for JSON", data)
			}
			for _, p := range problems {
				if p.Text == "" {
					t.Errorf("%q: a problem at %v without words", data, p.Path)
				}
			}
		}
	})
}
