package settings

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/deploy-ssh/deploy-ssh/internal/schema"
)

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
	text, err := os.ReadFile("../../nix/testdata/options.json")
	if err != nil {
		f.Fatal(err)
	}
	var table struct{ Items []struct{ Item string } }
	if err := json.Unmarshal(text, &table); err != nil {
		f.Fatal(err)
	}
	for _, row := range table.Items {
		f.Add(row.Item)
	}
	for keyword := range schema.RefusedKeywords() {
		f.Add(keyword + "=x")
		f.Add(strings.ToUpper(keyword) + "=x")
	}
	f.Fuzz(func(t *testing.T, item string) {
		if !utf8.ValidString(item) {
			t.Skip("JSON can't carry it")
		}
		err := CheckOption(item)
		if ok := accepted(t, "options", []string{item}); ok != (err == nil) {
			t.Errorf("%q: the schema says %v, CheckOption says %v", item, ok, err)
		}
		if err != nil {
			return
		}
		// An admitted item is one line of ssh_config that sets its own keyword.
		if strings.ContainsAny(item, "\x00\r\n") || strings.TrimSpace(item) == "" || strings.HasPrefix(item, "-") || strings.HasPrefix(item, "#") {
			t.Errorf("%q was admitted", item)
		}
		keyword, _, _ := strings.Cut(item, "=")
		if _, refused := schema.RefusedKeywords()[strings.ToLower(keyword)]; refused || strings.Trim(keyword, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") != "" {
			t.Errorf("%q was admitted", item)
		}
	})
}

// For the other fields the schema may be the milder one: no backslash and no
// closing bracket can be written in the dialects that its patterns share, and
// no pattern tells an IPv6 address from a name with a port.
func FuzzFieldsAgreeWithSchema(f *testing.F) {
	for _, text := range []string{"web", "[::1]", "a b", "-x", "fe80::1%eth0", `DOM\user`, "a$b", "/k e/y", `a"b`, "root@web", "web:22", "ssh://web", "a\x00b"} {
		f.Add(text)
	}
	checks := map[string]func(string) error{"host": CheckHost, "user": CheckUser, "key": CheckKey}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			t.Skip("JSON can't carry it")
		}
		for field, check := range checks {
			if check(text) == nil && !accepted(t, field, text) {
				t.Errorf("%s %q: accepted here, refused by the schema", field, text)
			}
		}
		if CheckHost(text) == nil && (strings.HasPrefix(text, "-") || strings.ContainsAny(text, "*?!,@/ \"'`$;&|<>(){}\\\r\n\t\x00")) {
			t.Errorf("the host %q was admitted", text)
		}
		if CheckUser(text) == nil && (strings.HasPrefix(text, "-") || strings.ContainsAny(text, "@ \"'`;&|<>(){}%\r\n\t\x00")) {
			t.Errorf("the user %q was admitted", text)
		}
		if strings.ContainsAny(text, `\[]:%`) || strings.ContainsFunc(text, func(r rune) bool { return r > 0x7f }) || schema.IsPrivateKey(text) {
			return
		}
		for field, check := range checks {
			if err := check(text); err != nil && accepted(t, field, text) {
				t.Errorf("%s %q: accepted by the schema, here %v", field, text, err)
			}
		}
	})
}

// A node's name goes into file names, unit names and errors.
func FuzzNodeName(f *testing.F) {
	for _, name := range []string{"web", "web.1", "-a", "", "a/b", "..", ".", "a b", "é", "a\n", "5", strings.Repeat("a", 64)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		_, err := ResolveOne(name, "", Environment{})
		if err == nil && (name == "" || len(name) > 63 || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") != "" || strings.ContainsAny(name[:1], "-._")) {
			t.Errorf("the name %q was admitted", name)
		}
		if err != nil && err.Error() == "" {
			t.Errorf("%q: an error without words", name)
		}
		if !utf8.ValidString(name) {
			return
		}
		entry, marshalError := json.Marshal(map[string]any{"nodes": map[string]any{name: nil}})
		if marshalError != nil {
			t.Fatal(marshalError)
		}
		if problems, checkError := schema.Check(schema.Environment, entry); checkError != nil || (len(problems) == 0) != (err == nil) {
			t.Errorf("%q: the schema says %v %v, ResolveOne says %v", name, problems, checkError, err)
		}
	})
}
