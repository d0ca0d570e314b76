package closure

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What Nix 2.8, 2.26 and 2.34 say of the same two paths.
const (
	infoList = `[{"ca":"fixed:r:sha256:04zwf782yjwnh3q6hz5izfd6jyip8kgw6g6yj43fiqhbyhdd0dqw","narHash":"sha256-HDfQGvQL4ugGkd48w99EN3ppmvuxfGjwgJZLL9Bx/BM=","narSize":120,"path":"/nix/store/xp0dpr9yz5h0fk5c5lpj7zzqjbdh3w8c-f","references":[],"registrationTime":1796055869,"valid":true},` +
		`{"deriver":"/nix/store/mqs8gg4d1vhsb0ffghc5l22glvk3wc8y-t.drv","narHash":"sha256:1hpx265vn0rwy4xlgvwyhk3j8vjivhn0rcacdlfi3xab5rj5x5yk","narSize":504,"path":"/nix/store/z9cl50f599pmgj2r3gj2bmq1yg7w48fd-t","references":["/nix/store/xp0dpr9yz5h0fk5c5lpj7zzqjbdh3w8c-f"],"signatures":["k-1:8Ak8UlMZ3WpdZ2lvcbNwRDWvqgDCBrNUHu4jK1ZyQ8VLvPGSe6m1ZgM3hQEQN4tS7bBDzDM0NDA6GJ4pQGkKDw==","strange"],"ultimate":true,"valid":true}]`
	infoObject = `{"/nix/store/xp0dpr9yz5h0fk5c5lpj7zzqjbdh3w8c-f":{"ca":"fixed:r:sha256:04zwf782yjwnh3q6hz5izfd6jyip8kgw6g6yj43fiqhbyhdd0dqw","deriver":null,"narHash":"sha256-HDfQGvQL4ugGkd48w99EN3ppmvuxfGjwgJZLL9Bx/BM=","narSize":120,"references":[],"registrationTime":1796055869,"signatures":[],"storeDir":"/nix/store","ultimate":false,"version":1}}`
)

func TestParsePathInfo(t *testing.T) {
	const f = "StorePath: /nix/store/xp0dpr9yz5h0fk5c5lpj7zzqjbdh3w8c-f\nURL: \nCompression: \n" +
		"NarHash: sha256:04zwf782yjwnh3q6hz5izfd6jyip8kgw6g6yj43fiqhbyhdd0dqw\nNarSize: 120\nReferences: \n" +
		"CA: fixed:r:sha256:04zwf782yjwnh3q6hz5izfd6jyip8kgw6g6yj43fiqhbyhdd0dqw\n"
	const t2 = "StorePath: /nix/store/z9cl50f599pmgj2r3gj2bmq1yg7w48fd-t\nURL: \nCompression: \n" +
		"NarHash: sha256:1hpx265vn0rwy4xlgvwyhk3j8vjivhn0rcacdlfi3xab5rj5x5yk\nNarSize: 504\nReferences: xp0dpr9yz5h0fk5c5lpj7zzqjbdh3w8c-f\n" +
		"Deriver: mqs8gg4d1vhsb0ffghc5l22glvk3wc8y-t.drv\n" +
		"Sig: k-1:8Ak8UlMZ3WpdZ2lvcbNwRDWvqgDCBrNUHu4jK1ZyQ8VLvPGSe6m1ZgM3hQEQN4tS7bBDzDM0NDA6GJ4pQGkKDw==\n"
	for _, tt := range []struct{ name, text, want, err string }{
		{name: "a list", text: infoList, want: f + t2},
		{name: "an object", text: infoObject, want: f},
		{name: "nothing", text: "[]"},
		{name: "cut short", text: infoObject[:len(infoObject)-1], err: "EOF"},
		{name: "cut in a path", text: infoList[:200], err: "EOF"},
		{name: "invalid, in a list", text: `[{"path":"/nix/store/xp0dpr9yz5h0fk5c5lpj7zzqjbdh3w8c-f","valid":false}]`, err: "not valid"},
		{name: "invalid, in an object", text: `{"/nix/store/xp0dpr9yz5h0fk5c5lpj7zzqjbdh3w8c-f":null}`, err: "not valid"},
		{name: "another store", text: strings.ReplaceAll(infoObject, "/nix/store", "/my/store"), err: "store"},
		{name: "no hash", text: strings.ReplaceAll(infoObject, "sha256-H", "md5-H"), err: "algo"},
		{name: "a shell's words", text: strings.ReplaceAll(infoObject, "w8c-f", "w8c-f'; rm"), err: "invalid character"},
		{name: "no JSON", text: "error", err: "invalid character"},
		{name: "another thing", text: "3", err: "begins with 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			paths, err := parsePathInfo(strings.NewReader(tt.text))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, p := range paths {
				got += p.String()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever Nix says, what is taken for a path can stand between a shell's quotes.
func FuzzPathInfo(f *testing.F) {
	for _, seed := range []string{infoList, infoObject, "[]", "{}", "[null]", `{"a":{}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		paths, err := parsePathInfo(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, p := range paths {
			if strings.ContainsAny(p.StorePath, "'\n\"\\ ") || !strings.HasPrefix(p.StorePath, "/nix/store/") || strings.Count(p.StorePath, "/") != 3 {
				t.Errorf("path %q", p.StorePath)
			}
			if p.NarHash == nil || strings.ContainsAny(p.Fingerprint(), " \n") {
				t.Errorf("fingerprint %q", p.Fingerprint())
			}
		}
	})
}
