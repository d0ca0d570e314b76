package hostkeys

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/google/go-cmp/cmp"
)

const (
	keyA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1ZbXpGmEmQxZxXg5sQ1oFyqFz7d3SgQeFhR5V3aB1c"
	keyB = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMJUatMIoFGCtjWkBkpCkU0aCvaMylAmGfl4UfKKjPxM"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "known hosts")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Names are found as ssh finds them, whatever else the file has.
func TestLookUp(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen on this machine")
	}
	runner := child.Local{Env: os.Environ()}
	plain := write(t, "garbage\n\n# a comment\n[web1]:2222,10.0.0.1 "+keyA+" root@web1\n@cert-authority *.example.org "+keyB+"\n@revoked web2 "+keyA+"\nweb2 "+keyB+"\n")
	hashed := write(t, "web1 "+keyA+"\n[web1]:2222 "+keyB+"\n")
	if out, err := exec.Command("ssh-keygen", "-q", "-H", "-f", hashed).CombinedOutput(); err != nil {
		t.Fatalf("hashing: %v: %s", err, out)
	}
	for _, tt := range []struct {
		file, name string
		want       []Entry
	}{
		{plain, "[web1]:2222", []Entry{{Line: 4, Key: keyA}}},
		{plain, "10.0.0.1", []Entry{{Line: 4, Key: keyA}}},
		{plain, "web1", nil},
		{plain, "a.example.org", []Entry{{Line: 5, Marker: "cert-authority", Key: keyB}}},
		{plain, "web2", []Entry{{Line: 6, Marker: "revoked", Key: keyA}, {Line: 7, Key: keyB}}},
		{hashed, "web1", []Entry{{Line: 1, Key: keyA}}},
		{hashed, "[web1]:2222", []Entry{{Line: 2, Key: keyB}}},
		{hashed, "web2", nil},
		{"/nonexistent", "web1", nil},
		{t.TempDir(), "web1", nil},
	} {
		got, err := LookUp(t.Context(), runner, tt.file, tt.name)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		for i := range got {
			if line, ok := LineOf(tt.file, got[i].Line); !ok || line.Key != got[i].Key || line.Text != got[i].Text {
				t.Errorf("%s: line %d is %+v, found was %+v", tt.name, got[i].Line, line, got[i])
			}
			got[i].File, got[i].Text = "", ""
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s in %s (-want +got):\n%s", tt.name, tt.file, diff)
		}
	}
}

func TestAdd(t *testing.T) {
	path := write(t, "a line without an end")
	if err := Add(path, []string{"one", "two"}); err != nil {
		t.Fatal(err)
	}
	if err := Add(path, []string{"three"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if want := "a line without an end\none\ntwo\nthree\n"; err != nil || string(text) != want {
		t.Errorf("the file has %q, want %q (%v)", text, want, err)
	}
	fresh := filepath.Join(t.TempDir(), "new")
	if err := Add(fresh, []string{"one"}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(fresh); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a new file: %v, %v; want mode 0600", info, err)
	}
}

func TestSaved(t *testing.T) {
	keys, tmp := t.TempDir(), t.TempDir()
	key := filepath.Join(keys, "id")
	if got, want := Saved(key, tmp), filepath.Join(keys, "deploy-ssh.known_hosts"); got != want {
		t.Errorf("beside the key: %q, want %q", got, want)
	}
	if left, _ := os.ReadDir(keys); len(left) > 0 {
		t.Errorf("looking for a place has made %v", left)
	}
	kept := Saved("", tmp)
	if filepath.Dir(filepath.Dir(kept)) != tmp {
		t.Errorf("without a key: %q, want a place in %s", kept, tmp)
	}
	if info, err := os.Stat(filepath.Dir(kept)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the kept folder: %v, %v; want mode 0700", info, err)
	}
	if got := Saved("/nonexistent/id", tmp); got != kept {
		t.Errorf("beside a key whose folder is not there: %q, want %q", got, kept)
	}
	if got := Saved("", "/nonexistent"); got != "" {
		t.Errorf("nowhere: %q, want ssh's default", got)
	}
	// A folder that others can write to, or a link, is not ours.
	if err := os.Chmod(filepath.Dir(kept), 0o777); err != nil {
		t.Fatal(err)
	}
	if got := Saved("", tmp); got != "" {
		t.Errorf("in a folder open to others: %q, want ssh's default", got)
	}
	linked := t.TempDir()
	if err := os.Symlink(keys, filepath.Join(linked, filepath.Base(filepath.Dir(kept)))); err != nil {
		t.Fatal(err)
	}
	if got := Saved("", linked); got != "" {
		t.Errorf("through a link: %q, want ssh's default", got)
	}
}

// The words are OpenSSH's own, 9.2 and 10.6.
const (
	changedWords = `debug1: sshconnect.c:verify_host_key():1477 (pid=4828): Server host key: ssh-ed25519 SHA256:hXRumCUwIUsfUgAJGyuca0FmkU9nCpGM2vfOIvDgiVQ
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Someone could be eavesdropping on you right now (man-in-the-middle attack)!
It is also possible that a host key has just been changed.
The fingerprint for the ED25519 key sent by the remote host is
SHA256:hXRumCUwIUsfUgAJGyuca0FmkU9nCpGM2vfOIvDgiVQ.
Please contact your system administrator.
Add correct host key in /root/pin to get rid of this message.
Offending ED25519 key in /root/pin:1
  remove with:
  ssh-keygen -f "/root/pin" -R "[127.0.0.1]:2222"
Host key for [127.0.0.1]:2222 has changed and you have requested strict checking.
Host key verification failed.
`
	unknownWords = `debug1: sshconnect.c:verify_host_key():1542 (bin=ssh, pid=6005): Server host key: ssh-rsa SHA256:XTbUyyRW9+geL4z52kQtz8i4h0CU4Lp5189MJJekuAc
No RSA host key is known for web1 and you have requested strict checking.
Host key verification failed.
`
)

func TestParseRefusal(t *testing.T) {
	hop := strings.SplitAfterN(changedWords, "\n", 2)[1] + "Connection closed by UNKNOWN port 65535\n"
	for _, tt := range []struct {
		name, words string
		want        Refusal
		ok          bool
	}{
		{"changed", changedWords, Refusal{Host: "[127.0.0.1]:2222", Shown: "ED25519 SHA256:hXRumCUwIUsfUgAJGyuca0FmkU9nCpGM2vfOIvDgiVQ", File: "/root/pin", Line: 1, Node: true}, true},
		{"changed, carriage returns", strings.ReplaceAll(changedWords, "\n", "\r\n"), Refusal{Host: "[127.0.0.1]:2222", Shown: "ED25519 SHA256:hXRumCUwIUsfUgAJGyuca0FmkU9nCpGM2vfOIvDgiVQ", File: "/root/pin", Line: 1, Node: true}, true},
		{"a hop's changed", hop, Refusal{Host: "[127.0.0.1]:2222", Shown: "ED25519 SHA256:hXRumCUwIUsfUgAJGyuca0FmkU9nCpGM2vfOIvDgiVQ", File: "/root/pin", Line: 1}, true},
		{"unknown", unknownWords, Refusal{Host: "web1", Shown: "RSA SHA256:XTbUyyRW9+geL4z52kQtz8i4h0CU4Lp5189MJJekuAc", Node: true}, true},
		{"none", "ssh: connect to host web1 port 22: Connection refused\n", Refusal{}, false},
	} {
		got, ok := ParseRefusal(tt.words)
		if diff := cmp.Diff(tt.want, got); diff != "" || ok != tt.ok {
			t.Errorf("%s: ok %v, want %v (-want +got):\n%s", tt.name, ok, tt.ok, diff)
		}
	}
}

func FuzzParseRefusal(f *testing.F) {
	f.Add(changedWords)
	f.Add(unknownWords)
	f.Add("Offending key in a:99999999999999999999999\n")
	f.Fuzz(func(t *testing.T, words string) {
		r, ok := ParseRefusal(words)
		if ok && r.Host == "" && r.Shown == "" {
			t.Errorf("%q tells of a refusal of nothing", words)
		}
		if r.Line < 0 {
			t.Errorf("%q: line %d", words, r.Line)
		}
	})
}

// A line that is read can be written again and means the same.
func FuzzParseLine(f *testing.F) {
	for _, line := range []string{"web1 " + keyA, "@revoked * " + keyB + " x", "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= " + keyA, "# " + keyA, "a b c", "@cert-authority *.x,!y " + keyA} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := ParseLine(line)
		if !ok {
			return
		}
		if Fingerprint(e.Key) == "no readable key" {
			t.Errorf("the key %q of the line %q has no fingerprint", e.Key, line)
		}
		again, ok := ParseLine("host " + e.Key)
		if !ok || again.Key != e.Key {
			t.Errorf("the key of %q comes back as %q", line, again.Key)
		}
		_ = parseFound("file", []byte("# Host x found: line 3 \n"+line))
	})
}
