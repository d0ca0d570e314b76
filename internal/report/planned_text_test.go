package report

import "testing"

// What is told apart is told apart in the text, too: no "X → X".
func TestSystems(t *testing.T) {
	path := func(hash, name string) string { return "/nix/store/" + hash + "-" + name }
	const (
		a = "0a1b2c3d4f5g6h7i8j9k0a1b2c3d4f5g"
		b = "9z8y7x6w5v4s3r2q1p0n9z8y7x6w5v4s"
		c = "0a1b2c3d000000000000000000000000" // begins as a does
	)
	seen := func(running, label string) *Seen { return &Seen{State: State{Running: running}, Label: label} }
	for _, tt := range []struct {
		name string
		n    Planned
		want string
	}{
		{"as wanted", Planned{Now: seen(path(a, "web-1"), "1"), Wanted: path(a, "web-1"), WantedLabel: "1"}, "web-1, as wanted"},
		{"another name", Planned{Now: seen(path(a, "web-1"), "1"), Wanted: path(b, "web-2"), WantedLabel: "2"}, "web-1 → web-2"},
		{"another label", Planned{Now: seen(path(a, "web"), "1"), Wanted: path(b, "web"), WantedLabel: "2"}, "web (1) → web (2)"},
		{"another hash alone", Planned{Now: seen(path(a, "web-1"), "1"), Wanted: path(b, "web-1"), WantedLabel: "1"}, "web-1, 0a1b2c3d → 9z8y7x6w"},
		{"a hash that begins alike", Planned{Now: seen(path(a, "web-1"), ""), Wanted: path(c, "web-1")}, "web-1, " + a + " → " + c},
		{"no store paths", Planned{Now: seen("/a/web", ""), Wanted: "/b/web"}, "web, /a/web → /b/web"},
		{"no system", Planned{Now: seen("", ""), Wanted: path(a, "web-1")}, "no NixOS system → web-1"},
		{"not evaluated", Planned{Now: seen(path(a, "web-1"), "")}, "web-1"},
	} {
		if got := systems(tt.n); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := sizeWords(SizeChange{Before: 812_000_000, After: 812_000_000}); got != "812.0 MB, the same" {
		t.Errorf("a size that is the same: %q", got)
	}
}
