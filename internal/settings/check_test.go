package settings

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/deploy-ssh/deploy-ssh/internal/schema"
	"github.com/google/go-cmp/cmp"
)

func TestCheckOption(t *testing.T) {
	for item, ok := range map[string]bool{
		"Port=2222":               true,
		"ProxyCommand=nc %h %p":   true,
		"ProxyJump=a,b":           true,
		"SetEnv=A=b":              true,
		"IdentityFile=/a b/ü":     true,
		"":                        false,
		"-p":                      false,
		"-oPort=1":                false,
		"-F ./cfg":                false,
		" -p 22 ":                 false,
		"-tt":                     false,
		"-oRequestTTY=force":      false,
		"-W 10.0.0.1:22":          false,
		"Port 22":                 false,
		"Port = 22":               false,
		"Port=":                   false,
		"Port= 22":                false,
		"=22":                     false,
		"Port=22\nHost=*":         false,
		"Port=22\rX":              false,
		"Port=22\x00":             false,
		"host=x":                  false,
		"BATCHMODE=no":            false,
		"Include=/etc/ssh/x":      false,
		"HostName=x":              true,
		"StrictHostKeyChecking=x": true,
	} {
		if err := CheckOption(item); (err == nil) != ok {
			t.Errorf("CheckOption(%q) = %v", item, err)
		}
	}
}

func TestCheckHost(t *testing.T) {
	for host, ok := range map[string]bool{
		"": true, "web": true, "10.0.0.2": true, "fe80::1%eth0": true, "[::1]": true, "my_alias": true,
		"*": false, "a?": false, "!a": false, "a,b": false, "a b": false, "-a": false, "[-a:]": false, "a\n": false,
		"root@web": false, "ssh://web": false, "[web]": false, "[::1]:22": false, `a"b`: false, `a\b`: false, "$(x)": false,
		"a\u00a0b": false, "a ": false,
		"fe80::1%lo": true, "[fe80::1%lo]": true, "[::1": false, "::1]": false, "::1:2222x": false, "web:22": false, "[]": false,
		"-oProxyCommand=touch x": false,
	} {
		if err := CheckHost(host); (err == nil) != ok {
			t.Errorf("CheckHost(%q) = %v", host, err)
		}
	}
}

func TestParseHostKeys(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
		problem    string
	}{
		{name: "empty"},
		{name: "plain", text: keyA, want: []string{keyA}},
		{name: "comment and newline", text: keyA + " root@web\n", want: []string{keyA}},
		{name: "several", text: "# both\n" + keyA + "\n\n  " + keyB + " x\n", want: []string{keyA, keyB}},
		{name: "known_hosts line", text: "web,10.0.0.1 " + keyA, problem: "write \"" + keyA + "\""},
		{name: "known_hosts line with a marker", text: "@cert-authority * " + keyA + " c", problem: "write \"" + keyA + "\""},
		{name: "options in front", text: "no-pty " + keyA, problem: "write"},
		{name: "cut short", text: keyA[:40], problem: "no public key line"},
		{name: "wrong type word", text: strings.Replace(keyA, "ssh-ed25519", "ssh-rsa", 1), problem: "no public key line"},
		{name: "second one wrong", text: keyA + "\nnonsense", problem: "no public key line"},
		{name: "private key", text: "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2", problem: "this is a private key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseHostKeys(test.text)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if test.problem == "" && err != nil || test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
				t.Errorf("got error %v, want %q", err, test.problem)
			}
		})
	}
}

// accepted asks the schema about one field of a node entry.
func accepted(t *testing.T, field string, value any) bool {
	t.Helper()
	text, err := json.Marshal(map[string]any{"nodes": map[string]any{"web": map[string]any{field: value}}})
	if err != nil {
		t.Fatal(err)
	}
	problems, err := schema.Check(schema.Environment, text)
	if err != nil {
		t.Fatal(err)
	}
	return len(problems) == 0
}

// The schema is what front-ends check with: it must refuse what the program
// refuses (FR-017), and accept what it accepts.
func FuzzOptionAgreesWithSchema(f *testing.F) {
	for _, item := range []string{"Port=2222", "-v", "A= b", "A=\n", "host=x", "hostname=x", "Match", "é=1", "A=\u00a0"} {
		f.Add(item)
	}
	for keyword := range refused {
		f.Add(keyword + "=x")
		f.Add(strings.ToUpper(keyword) + "=x")
	}
	f.Fuzz(func(t *testing.T, item string) {
		if !utf8.ValidString(item) || strings.Contains(item, "\x00") {
			t.Skip("JSON can't carry it, or Nix and the environment can't")
		}
		err := CheckOption(item)
		if ok := accepted(t, "options", []string{item}); ok != (err == nil) {
			t.Errorf("%q: the schema says %v, CheckOption says %v", item, ok, err)
		}
	})
}

// For the other fields the schema may be the milder one: no backslash and no
// closing bracket can be written in the dialects that its patterns share, and
// no pattern tells an IPv6 address from a name with a port.
func FuzzFieldsAgreeWithSchema(f *testing.F) {
	for _, text := range []string{"web", "[::1]", "a b", "-x", "fe80::1%eth0", `DOM\user`, "a$b", "/k e/y", `a"b`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Skip("JSON can't carry it, or Nix and the environment can't")
		}
		for field, check := range map[string]func(string) error{"host": CheckHost, "user": CheckUser, "key": CheckKey} {
			if check(text) == nil && !accepted(t, field, text) {
				t.Errorf("%s %q: accepted here, refused by the schema", field, text)
			}
		}
		if strings.ContainsAny(text, `\[]:`) || strings.ContainsFunc(text, func(r rune) bool { return r > 0x7f }) || strings.Contains(text, "PRIVATE KEY") {
			return
		}
		for field, check := range map[string]func(string) error{"host": CheckHost, "user": CheckUser, "key": CheckKey} {
			if err := check(text); err != nil && accepted(t, field, text) {
				t.Errorf("%s %q: accepted by the schema, here %v", field, text, err)
			}
		}
	})
}
