package settings

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckUnit(t *testing.T) {
	for glob, ok := range map[string]bool{
		"nginx.service": true, "backup-*": true, "*": true, "user@?.service": true, "-.mount": true,
		`dev-disk-by\x2dlabel-a.swap`: true, "a.b.timer": true, "*.mount": true,
		"": false, "nginx": false, "nginx.servce": false, "a b.service": false, "a/b.service": false,
		"[ab].service": false, "a].service": false, "ü.service": false, "a\n.service": false, "a;b*": false, ".service*'": false,
	} {
		if err := CheckUnit(glob); (err == nil) != ok {
			t.Errorf("CheckUnit(%q) = %v", glob, err)
		}
	}
}

func TestCheckMachineID(t *testing.T) {
	const bare = "8d7a1e0012345678aaaabbbbccccdddd"
	for id, want := range map[string]string{
		"": "", bare: "", "x": "",
		"8D7A1E00-1234-5678-AAAA-BBBBCCCCDDDD": `"8D7A1E00-1234-5678-AAAA-BBBBCCCCDDDD": write it as in the host's /etc/machine-id: "` + bare + `"`,
	} {
		err := checkMachineID(id)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: got %v", id, err)
		}
	}
}

func TestMatchUnit(t *testing.T) {
	for _, test := range []struct {
		glob, unit string
		want       bool
	}{
		{"nginx.service", "nginx.service", true},
		{"nginx.service", "nginx.service.d", false},
		{"nginx", "nginx.service", false},
		{"*", "a.service", true},
		{"*", "", true},
		{"backup-*", "backup-.service", true},
		{"backup-*", "backup.service", false},
		{"user@?.service", "user@1.service", true},
		{"user@?.service", "user@10.service", false},
		{"*-*.service", "a-b-c.service", true},
		{"a*b*c", "abbbbc", true},
		{"a*b*c", "abbbbd", false},
		{`a\x2db.swap`, `a\x2db.swap`, true},
		{`a\x2db.swap`, `ax2db.swap`, false},
	} {
		if got := MatchUnit(test.glob, test.unit); got != test.want {
			t.Errorf("MatchUnit(%q, %q) = %v", test.glob, test.unit, got)
		}
	}
}

func FuzzMatchUnit(f *testing.F) {
	f.Add("a*b?", "aXXbY")
	f.Fuzz(func(t *testing.T, glob, unit string) {
		if len(glob) > 12 || len(unit) > 40 || strings.ContainsAny(glob, `[]\`) || strings.ContainsAny(unit, "/") {
			t.Skip("path.Match reads these otherwise, or takes too long")
		}
		for _, r := range glob + unit {
			if r > 0x7e {
				t.Skip("unit names are ASCII")
			}
		}
		want, err := path.Match(glob, unit)
		if err != nil {
			t.Fatal(err)
		}
		if got := MatchUnit(glob, unit); got != want {
			t.Errorf("MatchUnit(%q, %q) = %v", glob, unit, got)
		}
	})
}

func TestElevation(t *testing.T) {
	const flake, env = ".#nodes ", KeyNodes + " "
	for _, test := range []struct {
		shared, envShared, own, envOwn string
		want                           Value[string]
	}{
		{"", "", "", "", Value[string]{"", OriginBuiltIn}},
		{"sudo", "", "", "", Value[string]{"sudo", flake + "defaults.elevate"}},
		{"sudo", "doas", "", "", Value[string]{"doas", env + "defaults.elevate"}},
		{"sudo", "sudo", "doas", "", Value[string]{"doas", flake + "nodes.web.elevate"}},
		{"", "", "sudo", "", Value[string]{"sudo", flake + "nodes.web.elevate"}},
		{"sudo", "sudo", "sudo", "doas", Value[string]{"doas", env + "nodes.web.elevate"}},
	} {
		f := Flake{Source: ".#nodes", Elevate: test.shared}
		e := Environment{Defaults: SSH{Elevate: test.envShared}, Nodes: map[string]SSH{"web": {Elevate: test.envOwn}}}
		if diff := cmp.Diff(test.want, f.Elevation(Node{Name: "web", Elevate: test.own}, e)); diff != "" {
			t.Errorf("%+v: -want +got\n%s", test, diff)
		}
	}
}
