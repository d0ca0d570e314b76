package ssh

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// gather asks the real ssh, and returns its answer or its words.
func gather(t *testing.T, args ...string) (out, words string) {
	t.Helper()
	cmd := exec.Command("ssh", append([]string{"-G", "-T"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		return "", stderr.String()
	}
	return string(stdout), ""
}

// An item written into the file as it is means exactly what `ssh -o ITEM` means.
func TestOptionMeansWhatItMeansToSSH(t *testing.T) {
	without := prepared(t, Settings{Host: "web1", User: "root", Options: []string{"Port=2222", "SendEnv=FIRST", "IdentityFile=" + quoted(privateKey(t, ""))}})
	for _, item := range []string{
		"ConnectTimeout=3", "connecttimeout=3", "ConnectTimeout=1m", "ConnectTimeout= 3", "ConnectTimeout =3", "ConnectTimeout=3 ",
		`ConnectTimeout="3"`, "Port=22", "Compression=no", "HostName=10.0.0.1", "HostName=%h.example.org", `HostName="a"`,
		"User=a.b@c", `User="a b"`, "User=a#b", `User=DOM\user`,
		"IdentityFile=/second", `IdentityFile="/a b/id"`, "IdentityFile=~/x", "IdentityFile=%d/x", "IdentityFile=/a#b", `IdentityFile="/a\\b"`,
		"CertificateFile=/c", "SendEnv=A B", "SendEnv=LC_* # not a comment?", "SendEnv=-FIRST", `SetEnv=A=1 B="2 3"`, "SetEnv=A=#1",
		"ProxyCommand=nc -x 127.0.0.1:1080 %h %p", `ProxyCommand=nc "a b" 'c d' %h # e`, "ProxyCommand=none", "ProxyJump=gw", "ProxyJump=a@gw:2222,[::1]:33",
		"LocalForward=8080 localhost:80", "LocalForward=/tmp/a /tmp/b", "RemoteForward=9090 localhost:90", "DynamicForward=1080",
		"UserKnownHostsFile=/a /b", `UserKnownHostsFile="/a b" /c`, "GlobalKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "StrictHostKeyChecking=off",
		"HostKeyAlias=x", "HostKeyAlgorithms=+ssh-rsa", "Ciphers=^aes256-ctr", "KexAlgorithms=-diffie-hellman-group14-sha256", "PubkeyAcceptedAlgorithms=ssh-ed25519",
		"AddressFamily=inet6", "BindAddress=::1", "IPQoS=lowdelay throughput", "RekeyLimit=1G 1h", "LogVerbose=kex.c:*", "CanonicalDomains=a.org b.org",
		"CanonicalizePermittedCNAMEs=*.a.org:*.b.org", "PermitRemoteOpen=any", "ForwardAgent=/run/agent", "TCPKeepAlive=no", "IgnoreUnknown=Foo*",
		// What ssh refuses it refuses in both places.
		"Foo=bar", "Port=abc", "Port=", "ConnectTimeout=soon", `IdentityFile="open`, "HostKeyAlgorithms=nothing", "AddressFamily=ipx", "StrictHostKeyChecking=perhaps",
	} {
		t.Run(item, func(t *testing.T) {
			// The same file but for the item, which stands first, as -o does.
			text := strings.Replace(without.Config, "    Port=2222\n", "    "+item+"\n    Port=2222\n", 1)
			with := without.file("with")
			if err := os.WriteFile(with, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			inFile, fileWords := gather(t, "-F", with, "--", "web1")
			onLine, lineWords := gather(t, "-F", without.file("config"), "-o", item, "--", "web1")
			if diff := cmp.Diff(onLine, inFile); diff != "" {
				t.Errorf("in the file it means something else than on the command line (-o, + file):\n%s", diff)
			}
			if (fileWords == "") != (lineWords == "") {
				t.Errorf("refused in one place only: %q in the file, %q on the command line", fileWords, lineWords)
			}
		})
	}
}

// The user of the settings is the user that ssh logs in as, on every OpenSSH.
func TestUserIsTaken(t *testing.T) {
	for _, user := range []string{"root", "a.b@c", "a b", "50%", "%r%h", "100%%", `DOM\user`, "x;y", "o'neil", `q"q`, "$HOME", "ü", "a#b"} {
		id := prepared(t, Settings{Host: "web1", User: user})
		if got := id.Effective.Get("user"); got != user {
			t.Errorf("user %q: ssh takes %q", user, got)
		}
	}
	// What ssh itself expands is not silently another user.
	_, err := client(t).Prepare(t.Context(), "web1", Settings{Host: "web1", User: "${HOME}"})
	var refused *SettingsError
	if err != nil && !errors.As(err, &refused) {
		t.Errorf("a user that ssh expands: %v", err)
	}
}

// What ssh refuses is told with the item, in ssh's own words, all at once.
func TestPrepareNamesTheItem(t *testing.T) {
	for _, tt := range []struct {
		name     string
		settings Settings
		want     []Problem
	}{
		{"two items and a key", Settings{Host: "web1", User: "root", Key: "/nonexistent/id", Options: []string{"Foo=bar", "Port=22", "ConnectTimeout=soon"}}, []Problem{
			{Field: "options", Index: 0, Text: `"Foo=bar": ssh refuses it: Bad configuration option: foo`},
			{Field: "options", Index: 2, Text: `"ConnectTimeout=soon": ssh refuses it: invalid time value.`},
			{Field: "key", Text: "the key file /nonexistent/id can't be read: no such file or directory"},
		}},
		{"a user that a shell would act on", Settings{Host: "web1", Options: []string{"Port=22", `User="x;y"`}}, []Problem{
			{Field: "options", Index: 1, Text: `"User=\"x;y\"": ssh refuses it: remote username contains invalid characters`},
		}},
		{"a jump over itself", Settings{Host: "10.0.0.1", User: "root", Options: []string{"ProxyJump=10.0.0.1:2222", "Port=22"}}, []Problem{
			{Field: "options", Index: -1, Text: loopText("ProxyJump 10.0.0.1:2222", "10.0.0.1")},
		}},
		{"the same, port and all", Settings{Host: "10.0.0.1", User: "root", Options: []string{"ProxyJump=10.0.0.1"}}, []Problem{
			{Field: "options", Index: -1, Text: loopText("jumphost loop via 10.0.0.1", "10.0.0.1")},
		}},
		{"jumps in a circle", Settings{Host: "web1", User: "root", ClientConfig: write(t, "Host web1\n  ProxyJump a\nHost a\n  ProxyJump b\nHost b\n  ProxyJump a\n")}, []Problem{
			{Field: "options", Index: -1, Text: "more than 16 jump hosts, in a circle perhaps"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := client(t).Prepare(t.Context(), "web1", tt.settings)
			var refused *SettingsError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want problems", err)
			}
			if diff := cmp.Diff(tt.want, refused.Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("the client configuration", func(t *testing.T) {
		path := write(t, "Foo bar\n")
		_, err := client(t).Prepare(t.Context(), "web1", Settings{Host: "web1", ClientConfig: path})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "Bad configuration option: foo") {
			t.Errorf("got %v, want ssh's words with the file %s", err, path)
		}
	})
}

func TestWeakened(t *testing.T) {
	const pin = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1ZbXpGmEmQxZxXg5sQ1oFyqFz7d3SgQeFhR5V3aB1c"
	loose := write(t, "Host web1\n  StrictHostKeyChecking accept-new\n  KnownHostsCommand /bin/true\n")
	for _, tt := range []struct {
		name     string
		settings Settings
		want     []string
	}{
		{"holds", Settings{}, nil},
		{"holds with neutral options", Settings{Options: []string{"HostKeyAlias=x", "CheckHostIP=yes", "StrictHostKeyChecking=yes", "HashKnownHosts=yes"}}, nil},
		{"options", Settings{Options: []string{"Port=1", "stricthostkeychecking=no", "UserKnownHostsFile=/x", "GlobalKnownHostsFile=/y"}}, []string{
			"StrictHostKeyChecking false (options[1])", "UserKnownHostsFile /x (options[2])", "GlobalKnownHostsFile /y (options[3])"}},
		{"client configuration", Settings{ClientConfig: loose}, []string{
			"StrictHostKeyChecking accept-new (client configuration " + loose + ")", "KnownHostsCommand /bin/true (client configuration " + loose + ")"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.settings.Host, tt.settings.User, tt.settings.HostKeys = "web1", "root", []string{pin}
			if diff := cmp.Diff(tt.want, prepared(t, tt.settings).Weakened); diff != "" {
				t.Errorf("weakened by (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseJump(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  []Hop
		fails bool
	}{
		{"", nil, false},
		{"none", nil, false},
		{"gw", []Hop{{Host: "gw"}}, false},
		{"a@gw:2222,b", []Hop{{"a", "gw", 2222}, {Host: "b"}}, false},
		{"a@b@gw", []Hop{{"a@b", "gw", 0}}, false},
		{"ssh://a@gw:22/", []Hop{{"a", "gw", 22}}, false},
		{"[::1]:22", []Hop{{"", "::1", 22}}, false},
		{"[fe80::1%lo]", []Hop{{"", "fe80::1%lo", 0}}, false},
		{"fe80::1", []Hop{{"", "fe80::1", 0}}, false},
		{"gw:x", nil, true},
		{"gw,,b", nil, true},
		{"-oProxyCommand=x", nil, true},
	} {
		got, err := parseJump(tt.value)
		if (err != nil) != tt.fails {
			t.Errorf("parseJump(%q): error %v, want one: %v", tt.value, err, tt.fails)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("parseJump(%q) (-want +got):\n%s", tt.value, diff)
		}
	}
}

// A hop never becomes a flag of ssh, and what it is printed as is read as itself.
func FuzzParseJump(f *testing.F) {
	for _, value := range []string{"gw", "a@gw:2222,b", "ssh://a@gw:22/", "[fe80::1%lo]:33,x@[::1]", "none", ",", "@:", "a@-b"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		hops, err := parseJump(value)
		if err != nil {
			return
		}
		for _, h := range hops {
			if h.Host == "" || h.Host[0] == '-' || h.Port < 0 || h.Port > 65535 {
				t.Errorf("parseJump(%q) has %+v", value, h)
			}
			args := h.args()
			if args[len(args)-2] != "--" || args[len(args)-1] != h.Host {
				t.Errorf("the arguments of %+v are %q", h, args)
			}
		}
	})
}

func FuzzParseEffective(f *testing.F) {
	f.Add([]byte("host web1\nport 22\nidentityfile ~/.ssh/a b\nidentityfile c\n"))
	f.Add([]byte("\n \nx"))
	f.Fuzz(func(t *testing.T, out []byte) {
		e := parseEffective(out)
		for keyword := range e {
			if keyword == "" || keyword != strings.ToLower(keyword) || strings.ContainsAny(keyword, " \n") {
				t.Errorf("the keyword %q of %q", keyword, out)
			}
		}
		_ = e.KnownAs()
	})
}

func TestKnownAs(t *testing.T) {
	for text, want := range map[string]string{
		"hostname web1\nport 22\n":                   "web1",
		"hostname 10.0.0.1\nport 2222\n":             "[10.0.0.1]:2222",
		"hostname fe80::1%lo\nport 2222\n":           "[fe80::1%lo]:2222",
		"hostname web1\nport 2222\nhostkeyalias x\n": "x",
	} {
		if got := parseEffective([]byte(text)).KnownAs(); got != want {
			t.Errorf("%q is known as %q, want %q", text, got, want)
		}
	}
}
