package packages

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// in is a store path whose hash part is made of one letter.
func in(letter, name string) string { return "/nix/store/" + strings.Repeat(letter, 32) + "-" + name }

func TestSplit(t *testing.T) {
	for _, tt := range []struct{ in, name, version string }{
		{in("a", "openssl-3.0.14"), "openssl", "3.0.14"},
		{in("a", "openssl-3.0.14-bin"), "openssl", "3.0.14"},
		{in("a", "glibc-2.40-66"), "glibc", "2.40-66"},
		{in("a", "glibc-2.40-66-bin"), "glibc", "2.40-66"},
		{in("a", "linux-6.6.1-modules"), "linux", "6.6.1"},
		{in("a", "perl5.38.2-Try-Tiny-0.31"), "perl5.38.2-Try-Tiny", "0.31"},
		{in("a", "nixos-system-web1-26.05.20261101.abcdef"), "nixos-system-web1", "26.05.20261101.abcdef"},
		{in("a", "unit-nginx.service"), "unit-nginx.service", ""},
		{in("a", "etc"), "etc", ""},
		{in("a", "x-bin"), "x-bin", ""},
		{in("a", "1-2"), "1", "2"},
		{in("a", "-2"), "-2", ""},
		{in("a", "a-"), "a-", ""},
		{in("a", "tool-1-unstable-2026-01-01"), "tool", "1-unstable-2026-01-01"},
		{"/nix/store/short", "short", ""},
		{"", ".", ""},
	} {
		name, version := Split(tt.in)
		if name != tt.name || version != tt.version {
			t.Errorf("Split(%q) = %q, %q, want %q, %q", tt.in, name, version, tt.name, tt.version)
		}
	}
}

func TestDiff(t *testing.T) {
	before := []string{
		in("a", "same-1.0"), in("a", "openssl-3.0.13"), in("b", "openssl-3.0.13-bin"), in("a", "rebuilt-1.0"),
		in("a", "gone-2.0"), in("a", "etc"), in("a", "two-1"), in("b", "two-2"), in("a", "bare"),
	}
	after := []string{
		in("a", "same-1.0"), in("c", "openssl-3.0.14"), in("d", "openssl-3.0.14-bin"), in("z", "rebuilt-1.0"),
		in("c", "came-0.1"), in("d", "etc"), in("a", "two-1"), in("d", "two-3"), in("d", "bare-2"),
	}
	want := Changes{
		Changed: []Change{
			{"bare", []string{""}, []string{"2"}},
			{"openssl", []string{"3.0.13"}, []string{"3.0.14"}},
			{"two", []string{"1", "2"}, []string{"1", "3"}},
		},
		Added:   []Change{{Name: "came", After: []string{"0.1"}}},
		Removed: []Change{{Name: "gone", Before: []string{"2.0"}}},
		Rebuilt: 2,
	}
	if diff := cmp.Diff(want, Diff(before, after)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	none := Changes{Changed: []Change{}, Added: []Change{}, Removed: []Change{}}
	if diff := cmp.Diff(none, Diff(before, before)); diff != "" {
		t.Errorf("a closure differs from itself (-want +got):\n%s", diff)
	}
	if got := Diff(nil, after); len(got.Added) != 7 || got.Rebuilt != 0 {
		t.Errorf("against nothing: %+v", got)
	}
}

// What came one way goes the other way.
func FuzzDiff(f *testing.F) {
	f.Add(in("a", "x-1")+"\n"+in("b", "y"), in("c", "x-2"))
	f.Fuzz(func(t *testing.T, a, b string) {
		before, after := strings.Split(a, "\n"), strings.Split(b, "\n")
		there, back := Diff(before, after), Diff(after, before)
		if len(there.Added) != len(back.Removed) || len(there.Removed) != len(back.Added) ||
			len(there.Changed) != len(back.Changed) || there.Rebuilt != back.Rebuilt {
			t.Errorf("%+v one way, %+v the other", there, back)
		}
	})
}
