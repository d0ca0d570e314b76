package activate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePreview(t *testing.T) {
	for _, tt := range []struct {
		name, said string
		want       Preview
		err        string
	}{
		{name: "all kinds", said: `would stop the following units: a.service, b.timer
would NOT stop the following changed units: dbus.service
would activate the configuration...
a script of the system: would stop the following units
would restart systemd
would reload the following units: c.service
would restart the following units: d.service
would start the following units: a.service

ended with 0
`, want: Preview{Stop: []string{"a.service", "b.timer"}, Kept: []string{"dbus.service"}, RestartsSystemd: true,
			Reload: []string{"c.service"}, Restart: []string{"d.service"}, Start: []string{"a.service"}}},
		{name: "nothing", said: "would activate the configuration...\n\nended with 0\n"},
		{name: "silent", said: "\nended with 0\n"},
		{name: "the lock", said: "Could not acquire lock\n\nended with 11\n", err: "exit code 11"},
		{name: "a check", said: "Error: Pre-switch checks failed\n\nended with 1\n", err: "exit code 1"},
		{name: "cut short", said: "would stop the following units: a.service\n", err: "ends early"},
		{name: "empty", err: "ends early"},
		{name: "not the end", said: "\nended with 0\nwould\n", err: "ends early"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parsePreview(tt.said)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("preview (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParsePreview(f *testing.F) {
	f.Add("would stop the following units: a.service\n\nended with 0\n")
	f.Fuzz(func(t *testing.T, said string) {
		if _, err := parsePreview(said); err == nil && !strings.Contains(said, "ended with ") {
			t.Errorf("%q is taken for whole", said)
		}
	})
}
