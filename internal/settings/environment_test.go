package settings

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/nix"
	"github.com/google/go-cmp/cmp"
)

func TestParseEnvironment(t *testing.T) {
	got, err := ParseEnvironment([]string{
		"PATH=/bin", "DEPLOY_SSH_USER=ops", "DEPLOY_SSH_KEY=/my key", "DEPLOY_SSH_CONFIG=~/c",
		`DEPLOY_SSH_NODES={"defaults":{"user":null,"options":["Port=2222"]},"nodes":{"web":{"host":"10.0.0.1"},"db":null}}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Environment{
		User: "ops", Key: "/my key", Config: "~/c",
		Defaults: SSH{Options: []string{"Port=2222"}},
		Nodes:    map[string]SSH{"web": {Host: "10.0.0.1"}, "db": {}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got, err := ParseEnvironment([]string{"DEPLOY_SSH_NODES= ", "DEPLOY_SSH_USER="}); err != nil || !cmp.Equal(got, Environment{}) {
		t.Errorf("empty variables: got %+v, %v", got, err)
	}
}

func TestParseEnvironmentProblems(t *testing.T) {
	for _, test := range []struct {
		name, entry, want string
	}{
		{"unknown variable", "DEPLOY_SSH_NODE={}", `DEPLOY_SSH_NODE: unknown variable; did you mean "DEPLOY_SSH_NODES"?`},
		{"a variable like no other", "DEPLOY_SSH_HOST=x", "DEPLOY_SSH_HOST: unknown variable (known: DEPLOY_SSH_KEY, "},
		{"a file's name", "DEPLOY_SSH_NODES=nodes.json", "DEPLOY_SSH_NODES: this is no JSON; wanted the map itself, {…}, not the name of a file"},
		{"the flake's form", `DEPLOY_SSH_NODES={"nodes":{"w":{"ssh":{"user":"x"}}}}`, `DEPLOY_SSH_NODES nodes.w.ssh: unknown field "ssh"; its fields stand here without it`},
		{"a NUL", `DEPLOY_SSH_NODES={"nodes":{"w":{"key":"\u0000"}}}`, "DEPLOY_SSH_NODES nodes.w.key: wanted a text without the character NUL"},
		{"a key as a field", `DEPLOY_SSH_NODES={"nodes":{"w":{"BEGIN PRIVATE KEY hunter2":1}}}`, "DEPLOY_SSH_NODES nodes.w.(a private key): unknown field (known:"},
		{"a key as a host", `DEPLOY_SSH_NODES={"nodes":{"w":{"host":"BEGIN PRIVATE KEY\nhunter2"}}}`, "DEPLOY_SSH_NODES nodes.w.host: wanted a host name"},
		{"a key as a name", `DEPLOY_SSH_NODES={"nodes":{"BEGIN PRIVATE KEY\nhunter2":{}}}`, "DEPLOY_SSH_NODES nodes.(a private key): wanted a name of letters"},
		{"bad user", "DEPLOY_SSH_USER=a b", `DEPLOY_SSH_USER: "a b": wanted a user name`},
		{"pasted key", "DEPLOY_SSH_KEY=-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2", "DEPLOY_SSH_KEY: this is a private key itself; wanted the path of its file"},
		{"no JSON", "DEPLOY_SSH_NODES={\n  \"nodes\": }", "DEPLOY_SSH_NODES: line 2, column 12: not JSON: invalid character '}'"},
		{"cut off", `DEPLOY_SSH_NODES={"nodes": {`, "DEPLOY_SSH_NODES: line 1, column 11: not JSON: unexpected end"},
		{"two documents", `DEPLOY_SSH_NODES={} {}`, "not JSON: invalid character '{' after top-level value"},
		{"no object", `DEPLOY_SSH_NODES=[]`, "DEPLOY_SSH_NODES: found a list; wanted an object with fields"},
		{"key twice", `DEPLOY_SSH_NODES={"nodes":{"web":{},"web":{}}}`, "nodes.web is given twice"},
		{"unknown field", `DEPLOY_SSH_NODES={"nodes":{"web":{"hots":"x"}}}`, `DEPLOY_SSH_NODES nodes.web.hots: unknown field "hots"; did you mean "host"?`},
		{"unknown at the root", `DEPLOY_SSH_NODES={"node":{}}`, `DEPLOY_SSH_NODES node: unknown field "node"; did you mean "nodes"? (known: defaults, nodes)`},
		{"an unknown elevation", `DEPLOY_SSH_NODES={"nodes":{"web":{"elevate":"su"}}}`, "DEPLOY_SSH_NODES nodes.web.elevate: "},
		{"shared host key", `DEPLOY_SSH_NODES={"defaults":{"hostKey":"x"}}`, "DEPLOY_SSH_NODES defaults.hostKey: a pinned host key belongs to one node"},
		{"flag as option", `DEPLOY_SSH_NODES={"defaults":{"options":["Port=1","-v"]}}`, `DEPLOY_SSH_NODES defaults.options[1]: "-v": is in command-line form`},
		{"refused keyword", `DEPLOY_SSH_NODES={"defaults":{"options":["loglevel=QUIET"]}}`, `defaults.options[0]: "loglevel=QUIET": the keyword loglevel can't be set here`},
		{"wrong type", `DEPLOY_SSH_NODES={"nodes":{"web":{"user":5}}}`, "DEPLOY_SSH_NODES nodes.web.user: found the number 5; wanted a string: a user name"},
		{"options as text", `DEPLOY_SSH_NODES={"nodes":{"web":{"options":"Port=1"}}}`, `nodes.web.options: found the string "Port=1"; wanted a list, as in [ "Port=1" ]`},
		{"illegal name", `DEPLOY_SSH_NODES={"nodes":{"a b":{}}}`, `DEPLOY_SSH_NODES nodes."a b": "a b": wanted a name of letters`},
		{"key in the map", `DEPLOY_SSH_NODES={"nodes":{"w":{"key":"BEGIN PRIVATE KEY\nhunter2"}}}`, "nodes.w.key: this is a private key"},
		{"key in a wrong place", `DEPLOY_SSH_NODES={"nodes":{"w":"BEGIN PRIVATE KEY\nhunter2"}}`, "nodes.w: found a private key; wanted an object"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseEnvironment([]string{test.entry})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the key: %v", err)
			}
		})
	}
}

func TestParseEnvironmentReportsEverything(t *testing.T) {
	_, err := ParseEnvironment([]string{"DEPLOY_SSH_X=", "DEPLOY_SSH_USER=-", "DEPLOY_SSH_NODES={"})
	if got := strings.Count(err.Error(), "\n") + 1; got != 3 {
		t.Errorf("got %d problems, want 3:\n%v", got, err)
	}
}

// The README, the schema and the program name the same variables in the same words.
func TestDeclaredVariables(t *testing.T) {
	var document struct {
		Defs struct {
			Variables struct {
				Properties map[string]struct{ Description string }
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(nix.Schema, &document); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for name, property := range document.Defs.Variables.Properties {
		want[name] = property.Description
	}
	got := map[string]string{}
	for _, k := range Keys {
		got[k.Name] = k.Meaning
		if k.Value == "" || k.Meaning == "" {
			t.Errorf("%s has no value or no meaning", k.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-schema.json +Keys\n%s", diff)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## Settings\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found || !strings.Contains(section, "\n"+Markdown()+"\n") {
		t.Errorf("the section Settings of README.md lacks the table as it is:\n%s", Markdown())
	}
	for _, word := range regexp.MustCompile("DEPLOY_SSH_[A-Z]+").FindAllString(string(readme), -1) {
		if _, declared := got[word]; !declared {
			t.Errorf("README.md names %s, which the program doesn't read", word)
		}
	}
}

// Every declared variable is read: a wrong value is an error that names it, or
// the value arrives.
func TestEveryVariableIsRead(t *testing.T) {
	for _, k := range Keys {
		env, err := ParseEnvironment([]string{k.Name + "={}x"})
		if err == nil && cmp.Equal(env, Environment{}) || err != nil && !strings.HasPrefix(err.Error(), k.Name+": ") {
			t.Errorf("%s: got %+v, %v", k.Name, env, err)
		}
	}
}

func FuzzParseEnvironment(f *testing.F) {
	f.Add(`{"defaults":{"user":"u"},"nodes":{"web":{"options":["Port=1"],"hostKey":"x"}}}`)
	f.Add(`{"nodes":{"web":{"web":[{}]},"web":1}}`)
	f.Fuzz(func(t *testing.T, text string) {
		env, err := ParseEnvironment([]string{KeyNodes + "=" + text})
		if err != nil {
			return
		}
		// What was accepted resolves, or says why not; it never panics.
		flake := Flake{Source: "f"}
		for name := range env.Nodes {
			flake.Nodes = append(flake.Nodes, Node{Name: name})
		}
		resolved, err := Resolve(flake, env)
		for _, r := range resolved {
			if err == nil && (r.Host.V == "" || r.User.V == "") {
				t.Errorf("%q: no host or no user in %+v", text, r)
			}
		}
	})
}
