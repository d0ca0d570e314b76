package cli

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A check that finds nothing wrong says so, on standard output; notes stand beside it.
func TestShowChecked(t *testing.T) {
	one := explanation{Node: "web1", User: "root", Address: "10.0.0.1", Port: "22", HostKey: "as pinned"}
	two := explanation{Node: "db", User: "joe", Address: "10.0.0.2", Port: "2222", Jumps: []string{"gw", "a@b:33"}, HostKey: "as saved in /f",
		Notes: []string{"db leads to 10.0.0.2 (HostName, options[0])", "a\x1bb"}}
	for _, tt := range []struct {
		all       []explanation
		out, errs string
	}{
		{[]explanation{one}, `NODE  LOGIN          PORT  VIA  HOST KEY
web1  root@10.0.0.1  22    -    as pinned

1 node checked, nothing wrong; no host was contacted
`, ""},
		{[]explanation{one, two}, `NODE  LOGIN          PORT  VIA         HOST KEY
web1  root@10.0.0.1  22    -           as pinned
db    joe@10.0.0.2   2222  gw, a@b:33  as saved in /f

2 nodes checked, nothing wrong, 2 notes; no host was contacted
`, "deploy-ssh: db: note: db leads to 10.0.0.2 (HostName, options[0])\ndeploy-ssh: db: note: a\\x1bb\n"},
	} {
		var out, errs bytes.Buffer
		if err := showChecked(Process{Stdout: &out, Stderr: &errs}, tt.all); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.out, out.String()); diff != "" {
			t.Errorf("standard output (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(tt.errs, errs.String()); diff != "" {
			t.Errorf("standard error (-want +got):\n%s", diff)
		}
	}
}
