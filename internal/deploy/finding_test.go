package deploy

import (
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/plan"
)

// What is said of a host before it is worked on is as true as the verdict: a dry run
// comes this far on one that is as wanted, too.
func TestFinding(t *testing.T) {
	for _, tt := range []struct {
		name                                       string
		running, profile, loader, entry, container string
		want                                       string
	}{
		{"another system", "/old", "/old", "grub", "/old", "", "runs /old, generation 7"},
		{"no system", "", "", "grub", "", "", "runs no NixOS system, generation 7"},
		{"as wanted", "/new", "/new", "grub", "/new", "", "already runs and boots the wanted system"},
		{"as wanted, in a container", "/new", "/new", "", "", "lxc", "already runs and boots the wanted system"},
		{"another profile", "/new", "/old", "grub", "/old", "", "already runs the wanted system, but does not boot it"},
		{"another boot entry", "/new", "/new", "grub", "/old", "", "already runs the wanted system, but does not boot it"},
		{"an unknown loader", "/new", "/new", "", "", "", "already runs the wanted system, but what it boots is not to be read"},
	} {
		d := &deployment{node: plan.Node{Toplevel: "/new"}}
		d.host.Running, d.host.Profile, d.host.Generation = tt.running, tt.profile, 7
		d.host.Loader, d.host.BootEntry, d.host.Container = tt.loader, tt.entry, tt.container
		if got := d.finding(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
