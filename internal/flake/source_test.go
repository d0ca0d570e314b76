package flake

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Answers of `nix flake metadata --json`, shortened to what is read.
func TestReadSource(t *testing.T) {
	const path = `"path":"/nix/store/n4lqnff541ll61lvq697y9fcwl9vq7iq-source"`
	for _, test := range []struct {
		name, answer string
		trees        []string
		// git are the indices of those trees that are Git's.
		git []int
		err string
	}{
		{
			"Nix 2.8, a dirty Git tree",
			`{"locked":{"lastModified":1,"narHash":"sha256-mBau","type":"git","url":"file:///tmp/f"},"locks":{"nodes":{"root":{"inputs":{"sub":"sub"}},"sub":{"locked":{"lastModified":1,"narHash":"sha256-qIaJ","path":"./sub","type":"path"},"original":{"path":"./sub","type":"path"}}},"root":"root","version":7},` + path + `}`,
			[]string{"/tmp/f"}, []int{0}, "",
		},
		{
			"Nix 2.26, inputs within the flake and outside",
			`{"locked":{"__final":true,"dirtyRev":"ef92-dirty","narHash":"sha256-zHQO","type":"git","url":"file:///a%20b?dir=x"},"locks":{"nodes":{"other":{"flake":false,"locked":{"narHash":"sha256-h4gy","path":"/f/other","type":"path"}},"root":{"inputs":{"other":"other","sub":"sub"}},"sub":{"locked":{"path":"./sub","type":"path"},"original":{"path":"./sub","type":"path"},"parent":[]}},"root":"root","version":7},` + path + `}`,
			[]string{"/a b", "/f/other"}, []int{0}, "",
		},
		{
			"remote, with an input pinned in the store",
			`{"locked":{"narHash":"sha256-x","rev":"ab","owner":"o","repo":"r","type":"github"},"locks":{"nodes":{"root":{},"nixpkgs":{"locked":{"narHash":"sha256-y","path":"/nix/store/4lqnff541ll61lvq697y9fcwl9vq7iqn-source","type":"path"}}},"root":"root"},` + path + `}`,
			nil, nil, "",
		},
		{
			"a committed input and a dirty one",
			`{"locked":{"narHash":"sha256-x","type":"path","path":"/f"},"locks":{"nodes":{"a":{"locked":{"narHash":"sha256-y","rev":"ab","type":"git","url":"file:///a"}},"b":{"locked":{"narHash":"sha256-z","type":"git","url":"file:/b"}},"root":{}},"root":"root"},` + path + `}`,
			[]string{"/f", "/b"}, []int{1}, "",
		},
		{"Mercurial", `{"locked":{"narHash":"sha256-x","type":"hg","url":"file:///f"},"locks":{"nodes":{"root":{}},"root":"root"},` + path + `}`, nil, nil, "a local source of the type hg"},
		{"no hash", `{"locked":{"type":"git","url":"file:///f"},"locks":{"nodes":{"root":{}},"root":"root"},` + path + `}`, nil, nil, "no content hash of the flake"},
		{"an input without hash", `{"locked":{"narHash":"sha256-x","type":"path","path":"/f"},"locks":{"nodes":{"root":{},"lazy":{"locked":{"type":"git","url":"file:///g"}}},"root":"root"},` + path + `}`, nil, nil, "no content hash of the input lazy"},
		{"a path input without parent", `{"locked":{"narHash":"sha256-x","type":"path","path":"/f"},"locks":{"nodes":{"root":{},"sub":{"locked":{"type":"path","path":"./sub"}}},"root":"root"},` + path + `}`, nil, nil, "no content hash of the input sub"},
		{"no locks", `{"locked":{"narHash":"sha256-x","type":"path","path":"/f"},` + path + `}`, nil, nil, "no locked inputs"},
		{"not in the store", `{"locked":{"narHash":"sha256-x","type":"path","path":"/f"},"locks":{"nodes":{"root":{}},"root":"root"}}`, nil, nil, "no copy of the flake in the store"},
		{"no JSON", `warning: x`, nil, nil, "nix flake metadata"},
	} {
		got, err := readSource([]byte(test.answer))
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: got %v, want %s", test.name, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if committed := slices.Contains(got.committed, "/a"); committed != strings.HasPrefix(test.name, "a committed") {
			t.Errorf("%s: the inputs with a revision are %q", test.name, got.committed)
		}
		var git []string
		for _, i := range test.git {
			git = append(git, test.trees[i])
		}
		if diff := cmp.Diff([][]string{test.trees, git}, [][]string{got.trees, got.repositories}); diff != "" || string(got.document) != test.answer {
			t.Errorf("%s: -want +got\n%s", test.name, diff)
		}
	}
}

func TestReadSettings(t *testing.T) {
	for _, test := range []struct{ answer, err string }{
		{`{"pure-eval":{"value":true},"plugin-files":{"value":[]},"cores":{"value":2}}`, ""},
		{`{"pure-eval":{"value":true},"allow-unsafe-native-code-during-evaluation":{"value":false}}`, ""},
		{`{"pure-eval":{"value":false}}`, "isn't pure"},
		{`{}`, "isn't pure"},
		{`{"pure-eval":{"value":"true"}}`, "isn't pure"},
		{`{"pure-eval":{"value":true},"allow-unsafe-native-code-during-evaluation":{"value":true}}`, "may run programs"},
		{`{"pure-eval":{"value":true},"plugin-files":{"value":["/x.so"]}}`, "plugins"},
		{`{"pure-eval":{"value":true},"plugin-files":{"value":"/x.so"}}`, "plugins"},
		{`pure-eval = true`, "the settings of Nix"},
	} {
		err := readSettings([]byte(test.answer))
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %v, want %q", test.answer, err, test.err)
		}
	}
}

func TestSettingsOf(t *testing.T) {
	for _, test := range []struct{ args, want, err string }{
		{"", "", ""},
		{"--option cores 2 --override-input a b --offline --option x y --accept-flake-config -L", "--option cores 2 --option x y --accept-flake-config", ""},
		{"--override-input a --impure", "", ""},
		{"--override-input a", "", "--override-input for Nix lacks a value"},
		{"--impure", "", "the argument --impure"},
		{"--override-input a b --expr 1", "", "the argument --expr"},
		{"--refresh", "", "the argument --refresh"},
		{"--cores 2", "", "the argument --cores"},
		{"nixpkgs#hello", "", "the argument nixpkgs#hello"},
	} {
		got, err := settingsOf(strings.Fields(test.args))
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: got %v, want %s", test.args, err, test.err)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %q, %v, want %q", test.args, got, err, test.want)
		}
	}
}

func FuzzReadSource(f *testing.F) {
	f.Add([]byte(`{"locked":{"narHash":"sha256-x","type":"git","url":"file:///f"},"locks":{"nodes":{"root":{},"a":{"locked":{"type":"path","path":"./a"},"parent":[]}},"root":"root"},"path":"/nix/store/x"}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		s, err := readSource(answer)
		if err == nil && (len(s.document) == 0 || !strings.HasPrefix(s.store, "/") || len(s.flakes) == 0) {
			t.Errorf("%q was read as %+v", answer, s)
		}
		for _, tree := range s.trees {
			if !strings.HasPrefix(tree, "/") {
				t.Errorf("%q is watched at %q", answer, tree)
			}
		}
	})
}

func TestCheckFlake(t *testing.T) {
	for text, want := range map[string]string{
		`{ nixConfig.substituters = [ "https://example.org" ]; outputs = _: { }; }`: "",
		`{ nixConfig.pure-eval = false; outputs = _: { }; }`:                        "pure-eval",
		`{ nixConfig."pure\-eval" = false; outputs = _: { }; }`:                     "pure-eval",
		`{ nixConfig = { plugin-files = [ "/x.so" ]; }; outputs = _: { }; }`:        "plugin-files",
	} {
		err := checkFlake(text)
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
