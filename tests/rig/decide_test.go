package rig

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPickMirror(t *testing.T) {
	for _, test := range []struct{ name, targets, want string }{
		{"apt says nothing", "", ""},
		{"the release's archive, not those of its updates",
			"http://a/security/ bookworm-security\nhttp://a/updates/ bookworm-updates\nhttp://a/debian/ bookworm\nhttp://b/ bookworm\n", "http://a/debian/"},
		{"only what debootstrap can read", "cdrom://[x]/ trixie\nmirror+http://a/ trixie\nfile:/srv/debian trixie\n", "file:/srv/debian"},
	} {
		if got := pickMirror(test.targets); got != test.want {
			t.Errorf("%s: pickMirror = %q, want %q", test.name, got, test.want)
		}
	}
}

func TestListening(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0B004D0A:0016 02004D0A:C1A2 01 00000000:00000000 02:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A 00000000:00000000
`
	if diff := cmp.Diff([]int{2222, 443}, listening(table)); diff != "" {
		t.Error(diff)
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		config Config
		want   string // part of the error; empty means none
	}{
		{"no targets", Config{Suite: "trixie"}, ""},
		{"two targets", Config{Suite: "trixie", Targets: []Target{{Name: "a"}, {Name: "b-2"}}}, ""},
		{"a suite that is a path", Config{Suite: "../x"}, "suite"},
		{"a target's suite that is a path", Config{Suite: "trixie", Targets: []Target{{Name: "a", Suite: "../x"}}}, "suite"},
		{"a name that is a path", Config{Suite: "trixie", Name: "a/b"}, "rig name"},
		{"a target without a name", Config{Suite: "trixie", Targets: []Target{{}}}, "target name"},
		{"a target twice", Config{Suite: "trixie", Targets: []Target{{Name: "a"}, {Name: "a"}}}, "taken"},
		{"a target named like the deployer", Config{Suite: "trixie", Targets: []Target{{Name: "deployer"}}}, "taken"},
		{"more targets than addresses", Config{Suite: "trixie", Targets: make([]Target, 245)}, "room for 244"},
	} {
		err := test.config.check()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func TestProcessThatIsAnothers(t *testing.T) {
	// Ours has another start time, so the one noted has ended and nothing is to be killed.
	if err := (process{Pid: os.Getpid(), Start: "1"}).kill(); err != nil {
		t.Error(err)
	}
	if start, err := startTime(os.Getpid()); err != nil || start == "" || start == "1" {
		t.Errorf("startTime = %q, %v", start, err)
	}
}
