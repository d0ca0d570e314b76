package settings

import (
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/schema"
)

// The forms are in nix/testdata/options.json; this is about the words.
func TestCheckOptionSaysWhatToWrite(t *testing.T) {
	const form = "a bare Key=Value option of ssh_config, such as Port=2222"
	for item, want := range map[string]string{
		"-p 2222":        `"-p 2222": is in command-line form; wanted ` + schema.Description("option") + `; write "Port=2222"`,
		"-p2222":         `; write "Port=2222"`,
		"-p=2222":        `; write "Port=2222"`,
		"-J gw":          `; write "ProxyJump=gw"`,
		"-oPort=2222":    `; write "Port=2222"`,
		"-o Port 2222":   `; write "Port=2222"`,
		"-o":             `"-o": is in command-line form; wanted ` + form,
		"-oLogLevel=x":   `"-oLogLevel=x": is in command-line form; wanted`,
		"-F ./cfg":       "; a file of ssh_config is given with DEPLOY_SSH_CONFIG",
		"-tt":            `"-tt": is in command-line form; wanted`,
		" -p 22 ":        `" -p 22 ": wanted ` + form,
		"Port 22":        `"Port 22": wanted ` + schema.Description("option") + `; write "Port=22"`,
		"Port = 22 ":     `; write "Port=22"`,
		"Port= 22":       `; write "Port=22"`,
		"Port=":          `"Port=": has no value; wanted ` + form,
		"Port=  ":        `"Port=  ": has no value; wanted ` + form,
		"include=x":      `"include=x": the keyword include can't be set here: a file of ssh_config is given with DEPLOY_SSH_CONFIG`,
		"RequestTTY=yes": "the keyword RequestTTY can't be set here: a terminal would change what the host answers",
		"A=-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2":  "wanted " + form,
		"A = BEGIN PRIVATE KEY hunter2":                   "wanted " + form,
		"-i -----BEGIN OPENSSH PRIVATE KEY-----\nhunter2": "is in command-line form; wanted " + form,
	} {
		err := CheckOption(item)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got  %v\nwant %s", item, err, want)
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
		"-oProxyCommand=touch x": false, "web:": false, ":22": false, ":": false, "web%h": false, "fe80::1%": false,
		"10.0.0.2:22": false, "[fe80::1%lo]:22": false, "deploy@web": false, "ssh://deploy@web:22/": false, "a]": false,
	} {
		if err := CheckHost(host); (err == nil) != ok {
			t.Errorf("CheckHost(%q) = %v", host, err)
		}
	}
}

func TestCheckHostSaysWhatToWrite(t *testing.T) {
	for host, want := range map[string]string{
		"root@web":                    `"root@web": has a user in front; write the host alone, as "web", and the user in its own place: user = "root"`,
		"root@web:22":                 `has a user in front; write the host alone, as "web"`,
		"a@b@c":                       `has a user in front; write the host alone, and the user in its own place: user = "a"`,
		"web:2222":                    `"web:2222": has a port; write the host alone, as "web", and the port as an option: options = [ "Port=2222" ]`,
		"[::1]:22":                    `has a port; write the host alone, as "::1", and the port as an option: options = [ "Port=22" ]`,
		"[fe80::1%eth0]:22":           `as "fe80::1%eth0"`,
		"ssh://root@web:22/x":         `"ssh://root@web:22/x": is a URL; write the host alone, as "web", and a user and a port in their own places`,
		"ssh-ng://[::1]":              `is a URL; write the host alone, as "::1", and`,
		"ssh://":                      "is a URL; write the host alone, and a user",
		"::1:2222x":                   `"::1:2222x": is no IPv6 address, and no name has a colon`,
		"[::1":                        `"[::1": wanted a host name, an ssh alias or an address`,
		"web%h":                       "has a %, which only the zone of an IPv6 address has",
		"-oProxyCommand=touch /tmp/x": "and not beginning with `-`",
		"web*":                        "the characters *?!, of patterns",
		"BEGIN PRIVATE KEY hunter2":   "wanted a host name",
	} {
		err := CheckHost(host)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got  %v\nwant %s", host, err, want)
		}
	}
}

func TestCheckUser(t *testing.T) {
	for user, want := range map[string]string{
		"":         "",
		"root":     "",
		`DOM\user`: "",
		"svc$":     "",
		"a.b-c_d":  "",
		"ü":        "",
		"root@web": `"root@web": has a host behind the ` + "`@`" + `; write the user alone, as "root"`,
		"-x":       `"-x": wanted a user name`,
		"a b":      "wanted a user name",
		"a:b":      "wanted a user name",
		"a\n":      "wanted a user name",
		`a\`:       "wanted a user name",
		`a\\b`:     "wanted a user name",
		"%u":       "wanted a user name",
		"${X}":     "wanted a user name",
		"a\u00a0b": "wanted a user name",
	} {
		err := CheckUser(user)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got  %v\nwant %s", user, err, want)
		}
	}
}
