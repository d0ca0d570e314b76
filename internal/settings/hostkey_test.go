package settings

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/deploy-ssh/deploy-ssh/internal/schema"
	"github.com/google/go-cmp/cmp"
)

// Keys made for these tests; nobody has the private ones any more.
const (
	keyA     = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAeSTrPt2ByS4ek2PVJ8VMD7Ng7VvHEDK1nqbzB7vWkZ"
	keyB     = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHzmo2tLAXnzQWUqvoCfbV6xQzWA6Rm7nGhT6C2qRp3k"
	keyRSA   = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQCtdSeFcNLtxGEyTuHmzazZ9ABX/lWvZR6G/+gO7jQ4vh33ORiJneJuOmkM/FMXPTZEy8Ckr4FhhXlAsgFx+yy606gFn3liLcPFbLpISoa5nm22SgatU20uwzcdlaNdKKpGSa6QsxdhYtdBEtHNplmVILMrfW9ybenP+Sv2+dYZ4v7QDdiBZJPGwAJFeqPAiCA+olDZvHRDgLJpWCQFWQ7nw0pMiokAWtZZIndSlKYlFdcNUxWonr897BS6Zg3f0jcv2ZpkjPn2j7CXsJZ84AcSl6VGgyv4AhkwWhpZzz20IDmOS4G6kwTOlYQujBLkzM7PHmgtpbLJsM1gYQW8HM+gVzmICJLwFAKtg2RIPSGcujSUN+9RTOZtx17omMnEd9g/711oeEn++DOAxKRJnv4n615CcZ+pG1tifCqrWen2cQQUfZ+9XUyyow29HHrPP/yykzPTorWK4qEnWwYGo8A2i1Am5sXhUId4HWuePXjv7+UE5wUHvMRSUElc22JRDVk="
	keyECDSA = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBMTRfONA1/VQZq1USCmAlRMhotterZHgPZHrDANmsefIJ6J2WPGA99VSsKoFdyU5PV2jZDG37+QdlIoMSMxMU7s="
	keyDSA   = "ssh-dss AAAAB3NzaC1kc3MAAACBAKpzcbtfkgCjHZ7SvpWlaUHq4xbaZYrjDP7f4+vZCUq8e3/gAGngF9z3rnepKi3bez/pGvko3+jalmEoWcBRIt1NynS/yx6i7lsXTQztO+8p4wL/d3WNSN4lyGSGlT89VUQTqAMVi8i6vG6xYygoPtOczNjJUonhezZ3qNMaADV7AAAAFQC4snkTxIdUMxFZWAMhatr62rG7nwAAAIBxwvERWC7Q+kRANAg8+79dWOoJQjj94JhXqYY3G9vfjN2tBF8NeLxKla/Pr1Mg5hgEcs2YrL+9Z6jBvV9HvYmxy6AZj2dWtn3BvCVo9NaTYkmGJ3PAwWReC7Ri1WP8GPGjTlrjgKAoGNnXvJylf1+ylLd9VE55MvZofYLmG1piPAAAAIBpMB6ZMD0gaeIet1pUNelc1X79SIJg62ruJ6eaCW9bkfaqdfPZdvXyv2jzRCpMY2ED0ctvMd5rAM1iAg2XnKs6XFhVl+alIk5D6O25t+9xFWOQEUckqxYMrz7fA3hIBtN2rpctSgH6Y9HaSsw5SjKs4qK4xRQ1LL1+Dpq5Kvut3w=="
	// keyCertificate is about keyCertified.
	keyCertificate = "ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29tAAAAILM7NGtcvufs4Rv9xckJ8l1pS2Reg1w2sRKjz6jSF33GAAAAIK/QEvyy9Jsl604p4RVuFV88XfRkIkChBtYqOJ1S0DvoAAAAAAAAAAAAAAACAAAAAWgAAAAHAAAAA3dlYgAAAAAAAAAA//////////8AAAAAAAAAAAAAAAAAAAAzAAAAC3NzaC1lZDI1NTE5AAAAINmULVRhIt0eexQgNvdlX9VqLJmUZplGUdlCBCi3KzF1AAAAUwAAAAtzc2gtZWQyNTUxOQAAAEBtFdwz5bQkf8D9EA0bEFnEa/HxlmZN2Zry8t2Kf6SqQA8oWE4aGQvLGpZunsQwCMRnETEm96UHkAJpQ9078ZoN"
	keyCertified   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK/QEvyy9Jsl604p4RVuFV88XfRkIkChBtYqOJ1S0Dvo"
)

func TestParseHostKeys(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
		problem    string
		// milder says that the schema's pattern can't tell, and admits the text.
		milder bool
	}{
		{name: "empty"},
		{name: "plain", text: keyA, want: []string{keyA}},
		{name: "comment and newline", text: keyA + " root@web\n", want: []string{keyA}},
		{name: "comment with blanks and more", text: keyA + "  the web server's \"key\" #1, ü", want: []string{keyA}},
		{name: "several types", text: "# all\n" + keyA + "\n\n  " + keyECDSA + " x\n" + keyRSA + "\n", want: []string{keyA, keyECDSA, keyRSA}},
		{name: "several of one type", text: keyA + "\n" + keyB, want: []string{keyA, keyB}},
		{name: "from Windows", text: keyA + "\r\n" + keyB + " c\r\n", want: []string{keyA, keyB}},
		{name: "parted by a tab", text: "\t" + strings.Replace(keyA, " ", "\t", 1) + "\tc", want: []string{keyA}},
		{name: "blanks alone", text: " \n", problem: "there is no key in it; wanted public key lines", milder: true},
		{name: "comments alone", text: "# " + keyA, problem: "there is no key in it; wanted public key lines", milder: true},
		{name: "ssh-keyscan", text: "web " + keyA, problem: "there is something before the key, as in ssh-keyscan's output or in known_hosts; write \"" + keyA + "\""},
		{name: "ssh-keyscan of several", text: "# web:22 SSH-2.0-OpenSSH_9.2\nweb " + keyA + "\nweb " + keyECDSA, problem: "line 2: there is something before the key, as in ssh-keyscan's output or in known_hosts; write \"" + keyA + "\"; line 3: "},
		{name: "known_hosts, with a port and an address", text: "[web]:2222,10.0.0.1 " + keyA + " c", problem: "write \"" + keyA + "\""},
		{name: "known_hosts, hashed", text: "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= " + keyA, problem: "write \"" + keyA + "\""},
		{name: "options in front", text: "no-pty,command=\"a b\" " + keyA, problem: "write \"" + keyA + "\""},
		{name: "authority", text: "@cert-authority * " + keyA + " c", problem: "this is a certificate authority, which vouches for many hosts; a pin is one host's own key: put the line into a known_hosts file and name that with the option UserKnownHostsFile=PATH"},
		{name: "revoked", text: "@revoked * " + keyA, problem: "this is a revoked key, the opposite of a pin"},
		{name: "another marker", text: "@pinned " + keyA, problem: "there is something before the key"},
		{name: "certificate", text: keyCertificate, problem: "this is a host certificate, which will expire; pin the key that it is about, \"" + keyCertified + "\", or its authority"},
		{name: "certificate in known_hosts", text: "web " + keyCertificate, problem: "this is a host certificate"},
		{name: "DSA", text: keyDSA, problem: "this is a DSA key, which ssh takes no more"},
		{name: "cut short", text: keyA[:40], problem: "this is no public key line, or one cut short; wanted public key lines of the host", milder: true},
		{name: "too long", text: keyA + "AAAA", problem: "this is no public key line", milder: true},
		{name: "the type alone", text: "ssh-ed25519", problem: "this is no public key line"},
		{name: "the key alone", text: strings.Fields(keyA)[1], problem: "this is no public key line"},
		{name: "a fingerprint", text: "SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8", problem: "this is no public key line"},
		{name: "a path", text: "/etc/ssh/ssh_host_ed25519_key.pub", problem: "this is no public key line"},
		{name: "another type's word", text: strings.Replace(keyA, "ssh-ed25519", "ssh-rsa", 1), problem: "this is no public key line", milder: true},
		{name: "the second one wrong", text: keyA + "\nnonsense", problem: "line 2: this is no public key line"},
		{name: "NUL", text: keyA + " \x00", want: []string{keyA}},
		{name: "private key", text: "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\nhunter2", problem: "this is a private key; wanted the public one, from the .pub file"},
		{name: "private key without its head", text: "b3BlbnNzaC1rZXktdjEAAAAA\nhunter2", problem: "this is a private key"},
		{name: "the middle of a private key", text: "AAAEhunter2AAAA\nAAAAhunter2", problem: "line 1: this is no public key line"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseHostKeys(test.text)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if test.problem == "" && err != nil || test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
				t.Errorf("got error %v, want %q", err, test.problem)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error repeats the text: %v", err)
			}
			if admitted := schema.Matches("hostKey", test.text); admitted != (err == nil || test.milder) {
				t.Errorf("the schema admits it: %v", admitted)
			}
		})
	}
}

func FuzzParseHostKeys(f *testing.F) {
	for _, text := range []string{
		keyA, keyA + " c\r\n\n# x\n" + keyECDSA, "web " + keyA, "@revoked * " + keyA, keyCertificate, keyDSA, keyRSA[:100],
		"-----BEGIN OPENSSH PRIVATE KEY-----", "no-pty " + keyA, "\tssh-ed25519\t", keyA + "\v", "\u00a0" + keyA,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseHostKeys(text)
		if err != nil {
			if len(keys) > 0 || err.Error() == "" {
				t.Errorf("%q: got %q and %v", text, keys, err)
			}
			return
		}
		if text != "" && len(keys) == 0 {
			t.Errorf("%q is an empty pin", text)
		}
		// What was read is canonical: it reads as itself, one line each.
		again, err := ParseHostKeys(strings.Join(keys, "\n"))
		if diff := cmp.Diff(keys, again); diff != "" || err != nil {
			t.Errorf("%q: -once +twice (%v)\n%s", text, err, diff)
		}
		for _, key := range keys {
			if strings.Count(key, " ") != 1 || strings.ContainsAny(key, "\r\n\t\x00*,") {
				t.Errorf("%q: the key %q can't stand in a known_hosts file", text, key)
			}
		}
		if utf8.ValidString(text) && !schema.Matches("hostKey", text) {
			t.Errorf("%q is refused by the schema", text)
		}
	})
}
