package planfile

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

const system = "/nix/store/00000000000000000000000000000001-nixos-system-web1-26.05"

var made = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func some() Plan {
	return Plan{
		Program: "0.1.0", Created: made, ClientConfig: "abc",
		Source: Source{Ref: ".#nodes", Dir: "/fleet", Whole: true},
		Nodes: []Node{
			{Name: "web1", Toplevel: system,
				Settings: Settings{Host: "10.0.0.2", User: "root", HostKeys: []string{"ssh-ed25519 AAAA"}, Options: []string{"Port=2222", "ProxyJump=a<b>&c"}},
				Planned:  report.Planned{Node: "web1", Wanted: system, Actions: []report.Action{report.ActCopy}, Now: &report.Seen{BootID: "b", MachineID: "m"}}},
			{Name: "web2", Planned: report.Planned{Node: "web2", Verdict: verdict.EvalFailed, Reason: "error: no «such» thing"}},
		},
	}
}

func encoded(t testing.TB, p Plan) string {
	t.Helper()
	text, err := Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRoundTrip(t *testing.T) {
	text := encoded(t, some())
	got, err := Decode([]byte(text), made.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(some(), got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	// Another layout is no other plan.
	for _, indent := range []string{"", "\t"} {
		again := strings.ReplaceAll(text, "\n", "\n"+indent)
		if _, err := Decode([]byte(again), made); err != nil {
			t.Errorf("indented by %q: %v", indent, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	with := func(change func(*Plan)) string {
		p := some()
		change(&p)
		return encoded(t, p)
	}
	good := encoded(t, some())
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "ends early"},
		{"no JSON", "hello", "no plan of deploy-ssh"},
		{"cut", good[:len(good)/2], "ends early"},
		{"two", good + good, "something follows"},
		{"foreign", `{"format_version":"1.2","terraform_version":"1.9.0","planned_values":{}}`, "no plan of deploy-ssh"},
		{"a list", `[]`, "no plan of deploy-ssh"},
		{"newer", strings.Replace(good, `"version": 1`, `"version": 2`, 1), "newer deploy-ssh"},
		{"older", strings.Replace(good, `"version": 1`, `"version": 0`, 1), "too old"},
		{"edited", strings.Replace(good, "10.0.0.2", "10.0.0.3", 1), "changed after it was made"},
		{"another system", strings.ReplaceAll(good, "000001-nixos", "000002-nixos"), "changed after it was made"},
		{"no sum", strings.Replace(good, `"sha256"`, `"sha"`, 1), "changed after it was made"},
		{"no content", `{"kind":"deploy-ssh plan","version":1,"sha256":"x"}`, "changed after it was made"},
		{"no node", with(func(p *Plan) { p.Nodes = nil }), "has no node"},
		{"twice", with(func(p *Plan) { p.Nodes[1] = p.Nodes[0] }), "twice"},
		{"a name that selects more", with(func(p *Plan) { p.Nodes[0].Name, p.Nodes[0].Planned.Node = "web*", "web*" }), "no node's name"},
		{"a name that says it of another", with(func(p *Plan) { p.Nodes[0].Name = "web9" }), "another node"},
		{"a system that was not planned", with(func(p *Plan) { p.Nodes[0].Toplevel = system + "2" }), "another node or system"},
		{"no store path", with(func(p *Plan) { p.Nodes[0].Toplevel, p.Nodes[0].Planned.Wanted = "/etc", "/etc" }), "no store path"},
		{"a path for a shell", with(func(p *Plan) {
			p.Nodes[0].Toplevel, p.Nodes[0].Planned.Wanted = system+"';reboot'", system+"';reboot'"
		}), "no store path"},
		{"old", with(func(p *Plan) { p.Created = made.Add(-8 * 24 * time.Hour) }), "7 days ago"},
		{"of tomorrow", with(func(p *Plan) { p.Created = made.Add(24 * time.Hour) }), "future"},
	} {
		if _, err := Decode([]byte(tt.text), made); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

// Whatever is read is a plan that could have been made, and is the same when it is
// written and read again. The content gets the sum that it needs.
func FuzzDecode(f *testing.F) {
	body, err := json.Marshal(some())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded(f, some()), string(body))
	f.Add("", `{"nodes":[{"name":"a","planned":{"node":"a"}}],"created":"2026-11-30T10:00:00Z"}`)
	f.Fuzz(func(t *testing.T, text, content string) {
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(content)) == nil {
			text = `{"kind":"deploy-ssh plan","version":1,"sha256":"` + sum(compact.Bytes()) + `","plan":` + content + `}`
		}
		p, err := Decode([]byte(text), made)
		if err != nil {
			return
		}
		again, err := Decode([]byte(encoded(t, p)), made)
		if err != nil {
			t.Fatalf("%q is read, and not again: %v", text, err)
		}
		if first, second := encoded(t, p), encoded(t, again); first != second {
			t.Errorf("read again it is another:\n%s\n%s", first, second)
		}
	})
}

func node(name string, s Settings) plan.Node {
	return plan.Node{
		Name: name, Expect: s.Expect, IgnoreUnits: s.IgnoreUnits, Elevate: settings.Value[string]{V: s.Elevate},
		SSH: settings.Resolved{
			Host: settings.Value[string]{V: s.Host}, User: settings.Value[string]{V: s.User}, Key: settings.Value[string]{V: s.Key},
			HostKeys: settings.Value[[]string]{V: s.HostKeys}, Options: settings.Value[[]string]{V: s.Options},
		},
	}
}

func TestChanges(t *testing.T) {
	was := some()
	web1, web2 := node("web1", was.Nodes[0].Settings), node("web2", was.Nodes[1].Settings)
	with := func(change func(*Settings)) plan.Node {
		s := was.Nodes[0].Settings
		change(&s)
		return node("web1", s)
	}
	part := some()
	part.Source.Whole = false
	for _, tt := range []struct {
		name string
		plan Plan
		now  Now
		want []string
	}{
		{"nothing", was, Now{[]plan.Node{web1, web2}, nil, "abc"}, nil},
		{"options", was, Now{[]plan.Node{with(func(s *Settings) { s.Options = []string{"Port=22"} }), web2}, nil, "abc"},
			[]string{`node web1: options is "Port=22", and was "Port=2222, ProxyJump=a<b>&c"`}},
		{"host and user", was, Now{[]plan.Node{with(func(s *Settings) { s.Host, s.User = "h", "" }), web2}, nil, "abc"},
			[]string{`node web1: host is "h", and was "10.0.0.2"`, `node web1: user is not set, and was "root"`}},
		{"a pin less", was, Now{[]plan.Node{with(func(s *Settings) { s.HostKeys = nil }), web2}, nil, "abc"},
			[]string{`node web1: hostKey is not set, and was "ssh-ed25519 AAAA"`}},
		{"elevation", was, Now{[]plan.Node{with(func(s *Settings) { s.Elevate = "sudo" }), web2}, nil, "abc"},
			[]string{`node web1: elevate is "sudo", and was not set`}},
		{"expect, ignoreUnits, key", was, Now{[]plan.Node{with(func(s *Settings) {
			s.Expect, s.IgnoreUnits, s.Key = flake.Expect{MachineID: "m", HostName: "n"}, []string{"u"}, "/k"
		}), web2}, nil, "abc"},
			[]string{`node web1: key is "/k", and was not set`, `node web1: expect.machineId is "m", and was not set`, `node web1: expect.hostName is "n", and was not set`, `node web1: ignoreUnits is "u", and was not set`}},
		{"a node gone", was, Now{[]plan.Node{web1}, nil, "abc"}, []string{"node web2 is gone"}},
		{"a node more", was, Now{[]plan.Node{web1, web2}, []string{"web3"}, "abc"}, []string{"new: web3"}},
		{"a node more, beside a part", part, Now{[]plan.Node{web1, web2}, []string{"web3"}, "abc"}, nil},
		{"the order", was, Now{[]plan.Node{web2, web1}, nil, "abc"}, []string{"the nodes' order is web2, web1, and was web1, web2"}},
		{"the client configuration", was, Now{[]plan.Node{web1, web2}, nil, ""}, []string{"the ssh client configuration is another one"}},
	} {
		if diff := cmp.Diff(tt.want, tt.plan.Changes(tt.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The field names of the file are those of this version; a change of one needs another
// version.
func TestForm(t *testing.T) {
	const path = "testdata/plan-1.json"
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), encoded(t, some())); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
