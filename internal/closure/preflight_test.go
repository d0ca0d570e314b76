package closure

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nix-community/go-nix/pkg/narinfo"
	"github.com/nix-community/go-nix/pkg/narinfo/signature"
)

const somePath = "/nix/store/xp0dpr9yz5h0fk5c5lpj7zzqjbdh3w8c-f"

func TestParsePreflight(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       preflight
		err        string
	}{
		{name: "all there", text: "store-free 100\npreflight complete\n", want: preflight{storeFree: 100 << 10, bootFree: -1}},
		{name: "much", text: "missing " + somePath + "\nread-only /nix\nstore-free 1\nboot-free 2\nboot-has abc\nuntrusted me\ntrusted-key k-1\ntrusted-key k-2\nno-nix yes\n" +
			"cache https://a\ndead-cache https://u:secret@b/x error: no\npreflight complete\n",
			want: preflight{missing: []string{somePath}, storeFree: 1 << 10, bootFree: 2 << 10, bootHas: []string{"abc"}, readOnly: "/nix", untrusted: "me",
				trustedKeys: []string{"k-1", "k-2"}, noNix: true, caches: []string{"https://a"}, dead: []string{"https://u:xxxxx@b/x: error: no"}}},
		{name: "a cache has some", text: "missing " + somePath + "\ncache https://a\ncaches-asked yes\nin-cache " + somePath + "\npreflight complete\n",
			want: preflight{missing: []string{somePath}, storeFree: -1, bootFree: -1, caches: []string{"https://a"}, cachesAsked: true, inCaches: []string{somePath}}},
		{name: "slow caches", text: "cache https://a\ncaches-slow yes\npreflight complete\n", want: preflight{storeFree: -1, bootFree: -1, caches: []string{"https://a"}}},
		{name: "no path in a cache", text: "in-cache x\npreflight complete\n", err: "x"},
		{name: "cut short", text: "missing " + somePath + "\n", err: "ends early"},
		{name: "nothing", err: "ends early"},
		{name: "no path", text: "missing /etc/passwd\npreflight complete\n", err: "path"},
		{name: "no size", text: "store-free much\n", err: "no size"},
		{name: "noise", text: "hello\npreflight complete\n", err: `unexpected line "hello"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parsePreflight([]byte(tt.text))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(preflight{})); diff != "" {
				t.Errorf("preflight (-want +got):\n%s", diff)
			}
		})
	}
}

// An answer is taken whole or not at all.
func FuzzPreflight(f *testing.F) {
	f.Add("missing " + somePath + "\nstore-free 1\ndead-cache https://u:p@h why\npreflight complete\n")
	f.Add("preflight")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePreflight([]byte(text))
		if err != nil {
			return
		}
		if p.storeFree < -1 || p.bootFree < -1 {
			t.Errorf("sizes %d, %d", p.storeFree, p.bootFree)
		}
		for _, path := range p.missing {
			if err := validPath(path); err != nil {
				t.Error(err)
			}
		}
		// Without its last line the answer is no answer.
		if i := strings.LastIndex(text, "preflight"); i >= 0 {
			if _, err := parsePreflight([]byte(text[:i])); err == nil && !strings.Contains(text[:i], "preflight") {
				t.Errorf("%q was taken", text[:i])
			}
		}
	})
}

func TestTooSmall(t *testing.T) {
	files := []bootFile{{"kkkk", 30}, {"iiii", 20}}
	for _, tt := range []struct {
		name string
		host preflight
		size int64
		want string
	}{
		{"enough", preflight{storeFree: 100, bootFree: 50}, 100, ""},
		{"nothing known", preflight{storeFree: -1, bootFree: -1}, 1 << 40, ""},
		{"store", preflight{storeFree: 99, bootFree: -1}, 100, "has 99 B free, and what is missing takes 100 B"},
		{"boot", preflight{storeFree: 100, bootFree: 49}, 100, "/boot has 49 B free, and the kernel and initrd of this system take 50 B"},
		{"boot has the kernel", preflight{storeFree: 100, bootFree: 20, bootHas: []string{"kkkk"}}, 100, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.host.tooSmall(tt.size, files)
			if got != tt.want && (tt.want == "" || !strings.Contains(got, tt.want)) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestSignedBy(t *testing.T) {
	signed := narinfo.NarInfo{Signatures: []signature.Signature{{Name: "k-1"}}}
	for _, tt := range []struct {
		p    narinfo.NarInfo
		keys []string
		want bool
	}{
		{signed, []string{"k-0", "k-1"}, true},
		{signed, []string{"k-0"}, false},
		{narinfo.NarInfo{}, []string{"k-1"}, false},
		{narinfo.NarInfo{CA: "fixed:r:sha256:x"}, nil, true},
	} {
		if got := signedBy(tt.p, tt.keys); got != tt.want {
			t.Errorf("signedBy(%v, %v) = %v", tt.p.Signatures, tt.keys, got)
		}
	}
}

func TestParseCompression(t *testing.T) {
	for text, want := range map[string]string{
		"none": "none", "zstd": DefaultCompression.String(), "zstd:1": "zstd:1", "zstd:19": "zstd:19",
		"zstd:0": "", "zstd:20": "", "zstd:": "", "zstd:x": "", "gzip": "", "": "", "none:1": "",
	} {
		got, err := ParseCompression(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("ParseCompression(%q) = %v, %v; want %q", text, got, err, want)
		}
	}
}
