package closure

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/nix-community/go-nix/pkg/narinfo"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

func TestGoesDirect(t *testing.T) {
	few := []narinfo.NarInfo{{StorePath: smallPath, NarSize: 100}}
	many := slices.Repeat(few, directPaths+1)
	large := []narinfo.NarInfo{{NarSize: directBytes}, {NarSize: 1}}
	cache := []string{"https://cache"}
	system := Job{Toplevel: smallPath}
	for _, tt := range []struct {
		name    string
		engine  Engine
		job     Job
		host    preflight
		missing []narinfo.NarInfo
		want    bool
	}{
		{name: "few, and no cache", job: system, missing: few, want: true},
		{name: "the most", job: system, missing: many[:directPaths], want: true},
		{name: "many", job: system, missing: many},
		{name: "the largest", job: system, missing: large[:1], want: true},
		{name: "large", job: system, missing: large},
		{name: "caches without them", job: system, host: preflight{caches: cache, cachesAsked: true}, missing: few, want: true},
		{name: "a cache has one", job: system, host: preflight{caches: cache, cachesAsked: true, inCaches: []string{smallPath}}, missing: few},
		{name: "caches that did not tell", job: system, host: preflight{caches: cache}, missing: few},
		{name: "dead caches", job: system, host: preflight{dead: cache}, missing: few, want: true},
		{name: "no nix to ask for caches", job: system, host: preflight{noNix: true}, missing: few},
		{name: "an untrusted user", job: system, host: preflight{untrusted: "joe"}, missing: few},
		{name: "a derivation", job: Job{Toplevel: smallPath + ".drv"}, missing: few},
		{name: "the operator's cache", engine: Engine{Via: &Via{}}, job: system, missing: few},
	} {
		if got := tt.engine.goesDirect(tt.job, tt.host, tt.missing); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

// The caches are asked only for what could go direct.
func TestQuestions(t *testing.T) {
	paths := []narinfo.NarInfo{{StorePath: pathOf("a", "a"), NarSize: directBytes}, {StorePath: pathOf("b", "b"), NarSize: directBytes + 1}}
	for direct, want := range map[bool]string{
		false: "few=0 large=''\n", true: fmt.Sprintf("few=%d large='%s'\n", directPaths, strings.Repeat("b", 32)),
	} {
		if text := (Engine{}).questions(paths, nil, direct); !strings.HasSuffix(text, want) {
			t.Errorf("direct %t: %s", direct, text)
		}
	}
}

func TestReferencesFirst(t *testing.T) {
	path := func(letter string, references ...string) narinfo.NarInfo {
		p := narinfo.NarInfo{StorePath: pathOf(letter, letter)}
		for _, r := range references {
			p.References = append(p.References, filepath.Base(pathOf(r, r)))
		}
		return p
	}
	for _, tt := range []struct {
		name  string
		paths []narinfo.NarInfo
		want  string
	}{
		{"none", nil, ""},
		{"unrelated", []narinfo.NarInfo{path("b"), path("a")}, "ba"},
		{"a chain", []narinfo.NarInfo{path("a", "b"), path("b", "c"), path("c")}, "cba"},
		{"itself and what is there", []narinfo.NarInfo{path("a", "a", "z"), path("b", "a")}, "ab"},
		{"a diamond", []narinfo.NarInfo{path("d", "b", "c"), path("c", "a"), path("b", "a"), path("a")}, "abcd"},
	} {
		got := ""
		for _, p := range referencesFirst(tt.paths) {
			got += p.StorePath[len(p.StorePath)-1:]
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// nixStore is a store of its own.
type nixStore string

func (s nixStore) environment() []string {
	return append(os.Environ(), "NIX_REMOTE=local?root="+string(s), "NIX_CONFIG=extra-experimental-features = nix-command")
}

func (s nixStore) try(t *testing.T, stdin string, args ...string) (out, said string, err error) {
	t.Helper()
	var stdout, stderr strings.Builder
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Env, c.Stdin, c.Stdout, c.Stderr = s.environment(), strings.NewReader(stdin), &stdout, &stderr
	err = c.Run()
	return stdout.String(), stderr.String(), err
}

func (s nixStore) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, said, err := s.try(t, stdin, args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, said)
	}
	return out
}

// known is all that a store knows of its paths, but when they came.
func (s nixStore) known(t *testing.T) map[string]any {
	t.Helper()
	var list []map[string]any
	text, _, err := s.try(t, "", "nix", "path-info", "--all", "--json", "--json-format", "1")
	if err != nil {
		text = s.run(t, "", "nix", "path-info", "--all", "--json") // before 2.34
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		// From Nix 2.19 on an object.
		var object map[string]map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err, text)
		}
		for path, info := range object {
			info["path"] = path
			list = append(list, info)
		}
	}
	known := map[string]any{}
	for _, info := range list {
		delete(info, "registrationTime")
		known[info["path"].(string)] = info
	}
	return known
}

// fill makes paths of all kinds: two that refer to each other, with a deriver and a
// signature, and two whose names tell their content.
func (s nixStore) fill(t *testing.T, paths []narinfo.NarInfo) {
	t.Helper()
	registered := ""
	for _, p := range paths {
		references := []string{fmt.Sprint(len(p.References))}
		for _, r := range p.References {
			references = append(references, "/nix/store/"+r)
		}
		registered += fmt.Sprintf("%s\n%x\n%d\n%s\n%s\n", p.StorePath, p.NarHash.Digest(), p.NarSize, pathOf("1", "d.drv"), strings.Join(references, "\n"))
	}
	s.run(t, registered, "nix-store", "--load-db")
	s.run(t, "", "nix", "eval", "--raw", "--expr", `builtins.toFile "b" "see ${builtins.toFile "a" "x"}"`)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(s.run(t, "", "nix", "key", "generate-secret", "--key-name", "k-1")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(t, "", "nix", "store", "sign", "-k", key, smallPath, largePath)
}

// What Nix makes of the stream is what the store here knows, byte for byte.
func TestAddToStoreIsNixs(t *testing.T) {
	tooltest.Need(t, "nix", "nix-store", "chmod")
	root, registered := store(t)
	from := nixStore(root)
	from.fill(t, registered)
	e := Engine{Runner: child.Local{Env: from.environment()}}
	var paths []narinfo.NarInfo
	for path := range from.known(t) {
		of, err := e.query(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range of {
			if !slices.ContainsFunc(paths, func(q narinfo.NarInfo) bool { return q.StorePath == p.StorePath }) {
				paths = append(paths, p)
			}
		}
	}
	stream := func(paths []narinfo.NarInfo) string {
		var stream bytes.Buffer
		if err := addToStore(&stream, root, referencesFirst(paths)); err != nil {
			t.Fatal(err)
		}
		return stream.String()
	}
	fresh := func() nixStore {
		dir := t.TempDir()
		t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+w", dir).Run() }) // Nix makes directories read-only
		return nixStore(dir)
	}

	all := stream(paths)
	to := fresh()
	for range 2 { // the second time all is there
		to.run(t, all, "nix-store", "--serve", "--write")
		if diff := cmp.Diff(from.known(t), to.known(t)); diff != "" || len(paths) != 4 {
			t.Errorf("%d paths in the store (-here +there):\n%s", len(paths), diff)
		}
	}
	to.run(t, "", "nix-store", "--verify", "--check-contents")

	// What is not as it is registered is not taken.
	for name, spoilt := range map[string]string{
		"a byte is another": strings.Replace(all, "#!/bin/sh", "#?/bin/sh", 1), "cut short": all[:len(all)-8],
	} {
		if _, said, err := fresh().try(t, spoilt, "nix-store", "--serve", "--write"); err == nil || !strings.Contains(said, "error:") {
			t.Errorf("%s: it is taken: %q", name, said)
		}
	}
	if err := os.Truncate(root+largePath+"/a/noise", 10); err != nil {
		t.Fatal(err)
	}
	if err := addToStore(&bytes.Buffer{}, root, paths); err == nil || !strings.Contains(err.Error(), largePath) {
		t.Errorf("a path that has changed is packed: %v", err)
	}
}

func TestPack(t *testing.T) {
	root, paths := store(t)
	slices.Reverse(paths) // the large one refers to the small one
	var want bytes.Buffer
	if err := addToStore(&want, root, referencesFirst(paths)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Compression{DefaultCompression, {}} {
		got, err := pack(root, paths, c)
		if err != nil {
			t.Fatal(err)
		}
		if got.paths != smallPath+"\n"+largePath+"\n" || strings.Trim(got.text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") != "" {
			t.Errorf("%v: packed %+v", c, got)
		}
		var r io.Reader = base64.NewDecoder(base64.StdEncoding, strings.NewReader(got.text))
		if c.Level > 0 {
			if r, err = gzip.NewReader(r); err != nil {
				t.Fatal(err)
			}
		}
		if unpacked, err := io.ReadAll(r); err != nil || !bytes.Equal(unpacked, want.Bytes()) || (got.unpack == "cat") != (c.Level == 0) {
			t.Errorf("%v: %d bytes for %s, want %d: %v", c, len(unpacked), got.unpack, want.Len(), err)
		}
	}
	if _, err := pack("/nowhere", paths, DefaultCompression); err == nil {
		t.Error("a path that isn't there is packed")
	}
}

func TestDirect(t *testing.T) {
	lost := &ssh.Error{Kind: ssh.Lost, Words: "cut"}
	root, paths := store(t)
	small, noisy := paths[0], paths[1]
	changed := small
	changed.NarSize++
	for _, tt := range []struct {
		name    string
		missing narinfo.NarInfo
		answers []error
		done    bool
		err     string
		notes   string
		reopens int
	}{
		{name: "taken", missing: small, answers: []error{nil}, done: true},
		{name: "not taken", missing: small, answers: []error{&ssh.ExitError{Words: "noise\nerror: no space"}}, notes: "sending all in one command was of no use: error: no space"},
		{name: "not a word", missing: small, answers: []error{&ssh.ExitError{}}, notes: "sending all in one command was of no use: the host's store says neither why it took nothing nor that " + small.StorePath + " is valid"},
		{name: "changed here", missing: changed, notes: "sending all in one command was of no use: packing " + smallPath + fmt.Sprintf(": its archive has %d bytes, not %d", small.NarSize, changed.NarSize)},
		{name: "too much when packed", missing: noisy},
		{name: "the line is lost once", missing: small, answers: []error{lost, nil}, done: true, reopens: 1},
		{name: "lost, and then not taken", missing: small, answers: []error{lost, &ssh.ExitError{Words: "error: no"}}, notes: "sending all in one command was of no use: error: no", reopens: 1},
		{name: "the line is lost for good", missing: small, answers: []error{lost, lost, lost}, err: "cut", reopens: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, sent, way := &fetcher{answers: tt.answers}, Sent{Missing: 1, MissingBytes: int64(tt.missing.NarSize)}, &door{}
			e := New(DefaultCompression)
			e.root = root
			done, err := e.direct(t.Context(), h, Job{Toplevel: tt.missing.StorePath, Progress: func(string) {}}, way, []narinfo.NarInfo{tt.missing}, &sent)
			if done != tt.done || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("done %t, error %v", done, err)
			}
			if got := strings.Join(sent.Notes, "\n"); got != tt.notes || h.reopens != tt.reopens || len(h.scripts) != len(tt.answers) {
				t.Errorf("notes %q, want %q; opened again %d times, %d scripts", got, tt.notes, h.reopens, len(h.scripts))
			}
			switch {
			case done && (sent.By != byDirect || sent.FromHere != 1 || sent.NarBytes != sent.MissingBytes || sent.WireBytes == 0 || sent.Tries != len(tt.answers)):
				t.Errorf("sent %+v", sent)
			case !done && err == nil && (sent.By != "" || sent.FromHere != 0 || sent.NarBytes != 0 || sent.WireBytes != 0 || sent.Tries != 0):
				t.Errorf("sent %+v, want nothing counted", sent)
			}
		})
	}
}
