package ssh

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

// signed makes a certificate of a key, beside it.
func signed(t *testing.T, key string) string {
	t.Helper()
	ca := privateKey(t, "")
	if out, err := exec.Command("ssh-keygen", "-q", "-s", ca, "-I", "test", key+".pub").CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen -s: %v: %s", err, out)
	}
	return key + "-cert.pub"
}

// The files that options name are there, whatever ssh calls them, or the item is named.
func TestFilesThatOptionsName(t *testing.T) {
	tooltest.Need(t, "ssh")
	key, locked := privateKey(t, ""), privateKey(t, "secret")
	certificate := signed(t, key)
	held := agent(t, locked)
	folder := filepath.Dir(key)
	for _, name := range []string{"web1.example.org", "joe", "50%"} {
		if err := os.Symlink(key, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KEYS", folder)
	home := client(t).home("~/")
	missing := func(path string) string { return "the key file " + path + " can't be read: no such file or directory" }
	for _, tt := range []struct {
		item, agent string
		want        string // empty when it is fine
	}{
		{"IdentityFile=" + quoted(key), "", ""},
		{"identityfile = " + quoted(key), "", ""},
		{"IdentityFile2=" + quoted(key), "", ""},
		{"IdentityFile=none", "", ""},
		{"IdentityFile=" + folder + "/%h", "", ""},
		{"IdentityFile=" + folder + "/%r", "", ""},
		{"IdentityFile=" + folder + "/50%%", "", ""},
		{"IdentityFile=${KEYS}/%h", "", ""},
		{"IdentityFile=" + quoted(locked), held, ""},
		{"IdentityFile=" + quoted(locked+".pub"), held, ""},
		{"CertificateFile=" + quoted(certificate), "", ""},
		{"CertificateFile=none", "", ""},

		{"IdentityFile=/nonexistent/id", "", missing("/nonexistent/id")},
		{"identityFILE=/nonexistent/id", "", missing("/nonexistent/id")},
		{"IdentityFile2=/nonexistent/id", "", missing("/nonexistent/id")},
		{"IdentityFile=/nonexistent/%h/%r", "", missing("/nonexistent/web1.example.org/joe")},
		{"IdentityFile=~/nonexistent/id", "", missing(home + "/nonexistent/id")},
		{"IdentityFile=${KEYS}/nonexistent", "", missing(folder + "/nonexistent")},
		{"IdentityFile=${NOTHING}/id", "", "ssh can't expand it: vdollar_percent_expand: env var ${NOTHING} has no value; invalid environment variable expansion"},
		{"IdentityFile=" + quoted(folder), "", folder + " is a directory; wanted a private key file"},
		{"IdentityFile=" + quoted(key+".pub"), "", key + ".pub is a public key, so an agent must hold its private half: there is no agent"},
		{"CertificateFile=/nonexistent/c", "", "the certificate file /nonexistent/c can't be read: no such file or directory"},
		{"CertificateFile=" + quoted(key+".pub"), "", "the certificate file " + key + ".pub has no certificate that ssh can read"},
	} {
		t.Run(tt.item, func(t *testing.T) {
			t.Setenv("SSH_AUTH_SOCK", tt.agent)
			var want []Problem
			if tt.want != "" {
				want = []Problem{{Field: "options", Index: 1, Text: fmt.Sprintf("%q: %s", tt.item, tt.want)}}
			}
			_, err := client(t).Prepare(t.Context(), "web1", Settings{
				Host: "web1", User: "joe", Options: []string{"HostName=web1.example.org", tt.item},
			})
			var refused *SettingsError
			if err != nil && !errors.As(err, &refused) {
				t.Fatal(err)
			}
			var got []Problem
			if refused != nil {
				got = refused.Problems
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// What the user's own configuration names, and ssh's default files, may be missing.
func TestOtherFilesMayBeMissing(t *testing.T) {
	prepared(t, Settings{Host: "web1", ClientConfig: write(t, "IdentityFile /nonexistent/id\nCertificateFile /nonexistent/c\n"), Options: []string{"Port=22"}})
}

// Also beside an item that ssh refuses, all at once.
func TestFilesBesideARefusedItem(t *testing.T) {
	_, err := client(t).Prepare(t.Context(), "web1", Settings{Host: "web1", Options: []string{"IdentityFile=/nonexistent/id", "Foo=bar", "IdentityFile=/nonexistent/%h"}})
	var refused *SettingsError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want problems", err)
	}
	want := []Problem{
		{Field: "options", Index: 1, Text: `"Foo=bar": ssh refuses it: Bad configuration option: foo`},
		{Field: "options", Index: 0, Text: `"IdentityFile=/nonexistent/id": the key file /nonexistent/id can't be read: no such file or directory`},
	}
	if diff := cmp.Diff(want, refused.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
