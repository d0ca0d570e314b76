package closure

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nix-community/go-nix/pkg/narinfo"
)

// path is a store path whose hash part is made of one letter.
func pathOf(letter, name string) string {
	return "/nix/store/" + strings.Repeat(letter, 32) + "-" + name
}

func TestParseSurvey(t *testing.T) {
	const lacks = "store-free 100\npreflight complete\n"
	a, b := pathOf("a", "a"), pathOf("b", "b")
	for _, tt := range []struct {
		name, text string
		want       surveyed
		err        string
	}{
		{name: "all", text: "missing " + b + "\n" + lacks + "running-read yes\ngone " + a + "\ncame " + b + "\ngone-size 12\nlabel 26.05\n" +
			"booted-kernel /k\nbooted-kernel-params  quiet x \nnewest 17 /s\ncaches-asked yes\nin-cache " + b + "\nsurveyed yes\n",
			want: surveyed{runningRead: true, gone: []string{a}, came: []string{b}, goneSizes: []int64{12}, label: "26.05", newest: 17, newestSystem: "/s",
				booted: map[string]string{"kernel": "/k", "kernel-params": "quiet x"}, cachesAsked: true, inCache: []string{b}}},
		{name: "nothing to say", text: lacks + "surveyed yes\n", want: surveyed{booted: map[string]string{}}},
		{name: "slow caches", text: lacks + "caches-slow yes\nsurveyed yes\n", want: surveyed{booted: map[string]string{}, tooSlow: true}},
		{name: "cut after the first half", text: lacks, err: "ends early"},
		{name: "cut in the first half", text: "store-free 100\n", err: "ends early"},
		{name: "the word in a line", text: "label preflight complete\nsurveyed yes\n", err: "ends early"},
		{name: "nothing", err: "ends early"},
		{name: "a size too few", text: lacks + "gone " + a + "\nsurveyed yes\n", err: "0 sizes of 1"},
		{name: "no size", text: lacks + "gone-size -1\nsurveyed yes\n", err: "no size"},
		{name: "no path", text: lacks + "came /etc/shadow\nsurveyed yes\n", err: "came"},
		{name: "no generation", text: lacks + "newest x /s\nsurveyed yes\n", err: "newest generation"},
		{name: "noise", text: lacks + "motd\nsurveyed yes\n", err: `unexpected line "motd"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, got, err := parseSurvey([]byte(tt.text))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(surveyed{})); diff != "" {
				t.Errorf("survey (-want +got):\n%s", diff)
			}
		})
	}
}

// An answer is taken whole or not at all.
func FuzzSurvey(f *testing.F) {
	f.Add("preflight complete\ngone " + somePath + "\ngone-size 1\nsurveyed yes\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, s, err := parseSurvey([]byte(text))
		if err == nil && (len(s.gone) != len(s.goneSizes) || !strings.Contains(text, "surveyed")) {
			t.Errorf("%q is taken as %+v", text, s)
		}
	})
}

func TestCompare(t *testing.T) {
	kept, old, new, fetched := pathOf("a", "kept"), pathOf("b", "old"), pathOf("c", "new"), pathOf("d", "fetched")
	closure := []narinfo.NarInfo{{StorePath: kept, NarSize: 100}, {StorePath: new, NarSize: 20}, {StorePath: fetched, NarSize: 3}}
	lacks := preflight{storeFree: 5000, bootFree: -1, missing: []string{new, fetched}}
	want := Survey{
		After: []string{kept, new, fetched}, AfterBytes: 123, Before: []string{kept, old}, BeforeBytes: 107,
		Missing: 2, MissingBytes: 23, CachesAsked: true, InCaches: 1, InCachesBytes: 3, StoreFree: 5000, BootFree: -1,
	}
	// What a cache has of no part of the closure is not counted.
	said := surveyed{runningRead: true, gone: []string{old}, goneSizes: []int64{7}, came: []string{new, fetched}, cachesAsked: true, inCache: []string{fetched, pathOf("e", "else")}}
	if diff := cmp.Diff(want, compare(closure, lacks, said)); diff != "" {
		t.Errorf("survey (-want +got):\n%s", diff)
	}
	want = Survey{After: want.After, AfterBytes: 123, Missing: 2, MissingBytes: 23, StoreFree: 5000, BootFree: -1}
	if diff := cmp.Diff(want, compare(closure, lacks, surveyed{})); diff != "" {
		t.Errorf("of a host that doesn't know what it runs (-want +got):\n%s", diff)
	}
}

func TestChangedParts(t *testing.T) {
	booted := map[string]string{"kernel": "/k1", "initrd": "/i1", "kernel-modules": "/m1", "kernel-params": "quiet"}
	with := func(name, value string) map[string]string {
		other := map[string]string{}
		for k, v := range booted {
			other[k] = v
		}
		other[name] = value
		return other
	}
	for _, tt := range []struct {
		name           string
		booted, wanted map[string]string
		want           []string
	}{
		{"the same", booted, booted, nil},
		{"another kernel", booted, with("kernel", "/k2"), []string{"kernel"}},
		{"other parameters", booted, with("kernel-params", "quiet nosmt"), []string{"kernel-params"}},
		{"a container", map[string]string{}, booted, nil},
		{"a system without a kernel", booted, map[string]string{}, nil},
	} {
		if diff := cmp.Diff(tt.want, changedParts(tt.booted, tt.wanted)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestRefuses(t *testing.T) {
	closure := []narinfo.NarInfo{{StorePath: somePath, NarSize: 100}}
	missing := []string{somePath}
	for _, tt := range []struct {
		name string
		p    preflight
		want string
	}{
		{"nothing", preflight{missing: missing, storeFree: 1000, bootFree: -1}, ""},
		{"read-only", preflight{readOnly: "/nix", storeFree: -1, bootFree: -1}, "read-only"},
		{"full", preflight{missing: missing, storeFree: 99, bootFree: -1}, "99 B free"},
		{"unsigned", preflight{missing: missing, storeFree: 1000, bootFree: -1, untrusted: "joe"}, "lacks a signature"},
		{"unsigned, but there", preflight{storeFree: 1000, bootFree: -1, untrusted: "joe"}, ""},
	} {
		got := tt.p.refuses(closure, 100, nil)
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
