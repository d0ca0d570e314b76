package sshworld

import (
	"strings"
	"testing"
)

const whole = `{
	"flake": "/root/fleet", "program": "deploy-ssh", "clientConfig": "/root/client.conf",
	"ssh": {"user": "root", "key": "/root/onlooker", "knownHosts": "/root/onlooker.known_hosts"},
	"targets": [{"node": "web1", "host": "web1", "port": 2201, "serverName": "web1", "page": "one\n", "certificate": "etc/a.pem"}],
	"baseline": {"node": "b", "host": "b", "port": 2203, "serverName": "web1", "page": "one\n", "certificate": "etc/a.pem"}
}`

func TestParseWorld(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"whole", "", "", ""},
		{"no baseline", `"baseline"`, `"baseline": null, "ssh"`, "unknown"},
		{"unknown field", `"program"`, `"programme"`, `unknown field "programme"`},
		{"no page", `"page": "one\n", "certificate": "etc/a.pem"}]`, `"certificate": "etc/a.pem"}]`, "targets[0].page is not given"},
		{"no port", `"port": 2203, `, "", "baseline.port is not given"},
		{"no key", `"/root/onlooker"`, `""`, "ssh.key is not given"},
		{"no targets", `"targets": [`, `"targets": [], "x": [`, "unknown field"},
		{"two of them", "}\n}", "}\n} {}", "more than one"},
		{"no JSON", "{", "<", "invalid character"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(whole, test.old, test.new, 1)
			w, err := Parse([]byte(text))
			if test.want == "" {
				if err != nil || w.Targets[0].Port != 2201 || w.Baseline.Port != 2203 || w.SSH.Key != "/root/onlooker" {
					t.Errorf("got %+v, %v", w, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if _, err := Parse([]byte(strings.Split(whole, `"targets"`)[0] + `"targets": []}`)); err == nil || !strings.Contains(err.Error(), "no targets") {
		t.Errorf("no targets: got %v", err)
	}
	w, err := Parse([]byte(whole[:strings.Index(whole, `"baseline"`)] + `"baseline": null}`))
	if err != nil || w.Baseline != nil {
		t.Errorf("no baseline: got %+v, %v", w.Baseline, err)
	}
}
