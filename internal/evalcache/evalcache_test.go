package evalcache

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, base string) *Cache {
	t.Helper()
	c, err := Open(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestPutAndGet(t *testing.T) {
	base := filepath.Join(t.TempDir(), "no", "such")
	c := open(t, base)
	key, other := KeyOf([]byte("a")), KeyOf([]byte("b"))
	if got, err := c.Get(key); got != nil || err != nil {
		t.Fatalf("an empty cache has %q, %v", got, err)
	}
	for _, body := range []string{"first", "second\n\x00", ""} {
		if err := c.Put(key, []byte(body)); err != nil {
			t.Fatal(err)
		}
		// Another run sees it.
		got, err := open(t, base).Get(key)
		if err != nil || got == nil || string(got) != body {
			t.Errorf("got %q, %v, want %q", got, err, body)
		}
	}
	if got, err := c.Get(other); got != nil || err != nil {
		t.Errorf("another key has %q, %v", got, err)
	}
	for path, want := range map[string]os.FileMode{
		filepath.Join(base, "deploy-ssh"):                              0o700,
		filepath.Join(base, "deploy-ssh", "evaluations"):               0o700,
		filepath.Join(base, "deploy-ssh", "evaluations", key.String()): 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %o", path, info.Mode(), err, want)
		}
	}
}

func TestKeyOf(t *testing.T) {
	keys := map[Key]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"", "ab"}, {"1:a"}, {"a1:b"}, {"b", "a"}} {
		var bytes [][]byte
		for _, p := range parts {
			bytes = append(bytes, []byte(p))
		}
		key := KeyOf(bytes...)
		if same, ok := keys[key]; ok {
			t.Errorf("%q has the key of %s", parts, same)
		}
		keys[key] = fmt.Sprintf("%q", parts)
	}
}

// What could be another's, or isn't whole, is not read.
func TestNotTrusted(t *testing.T) {
	key := KeyOf([]byte("key"))
	for _, test := range []struct {
		name string
		// spoil changes a cache that has one entry.
		spoil func(t *testing.T, dir, entry string)
		// atOpen says that the cache can't be opened.
		atOpen bool
		want   string
		root   bool
	}{
		{name: "cut off", want: "is damaged", spoil: func(t *testing.T, _, entry string) { rewrite(t, entry, func(b []byte) []byte { return b[:len(b)-1] }) }},
		{name: "empty", want: "is damaged", spoil: func(t *testing.T, _, entry string) { rewrite(t, entry, func(b []byte) []byte { return nil }) }},
		{name: "one bit", want: "is damaged", spoil: func(t *testing.T, _, entry string) {
			rewrite(t, entry, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		}},
		{name: "another format", want: "is damaged", spoil: func(t *testing.T, _, entry string) {
			rewrite(t, entry, func(b []byte) []byte { return bytes.Replace(b, []byte(" 1\n"), []byte(" 0\n"), 1) })
		}},
		{name: "of another key", want: "is damaged", spoil: func(t *testing.T, _, entry string) {
			rewrite(t, entry, func([]byte) []byte { return seal(KeyOf([]byte("other")), []byte("body")) })
		}},
		{name: "readable entry", want: "has the mode 0640", spoil: func(t *testing.T, _, entry string) { must(t, os.Chmod(entry, 0o640)) }},
		{name: "a link as entry", want: "is no regular file", spoil: func(t *testing.T, dir, entry string) {
			must(t, os.Rename(entry, entry+"x"))
			must(t, os.Symlink(filepath.Base(entry)+"x", entry))
		}},
		{name: "a directory as entry", want: "is no regular file", spoil: func(t *testing.T, _, entry string) {
			must(t, os.Remove(entry))
			must(t, os.Mkdir(entry, 0o700))
		}},
		{name: "foreign entry", root: true, want: "belongs to user 12345", spoil: func(t *testing.T, _, entry string) { must(t, os.Chown(entry, 12345, 0)) }},
		{name: "group-writable directory", atOpen: true, want: "evaluations has the mode 0770", spoil: func(t *testing.T, dir, _ string) { must(t, os.Chmod(dir, 0o770)) }},
		{name: "writable parent", atOpen: true, want: "deploy-ssh has the mode 0702", spoil: func(t *testing.T, dir, _ string) { must(t, os.Chmod(filepath.Dir(dir), 0o702)) }},
		{name: "foreign directory", root: true, atOpen: true, want: "belongs to user 12345", spoil: func(t *testing.T, dir, _ string) { must(t, os.Chown(dir, 12345, 0)) }},
		{name: "somebody's home", root: true, atOpen: true, want: "belongs to user 12345", spoil: func(t *testing.T, dir, _ string) {
			must(t, os.Chown(filepath.Join(dir, "..", ".."), 12345, 0))
		}},
		{name: "a link as directory", atOpen: true, want: "evaluations is no directory", spoil: func(t *testing.T, dir, _ string) {
			must(t, os.Rename(dir, dir+"x"))
			must(t, os.Symlink(dir+"x", dir))
		}},
		{name: "a file as directory", atOpen: true, want: "deploy-ssh is no directory", spoil: func(t *testing.T, dir, _ string) {
			must(t, os.RemoveAll(filepath.Dir(dir)))
			must(t, os.WriteFile(filepath.Dir(dir), nil, 0o600))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.root && os.Geteuid() != 0 {
				t.Skip("giving a file away needs root")
			}
			base := t.TempDir()
			must(t, open(t, base).Put(key, []byte("body")))
			dir := filepath.Join(base, "deploy-ssh", "evaluations")
			test.spoil(t, dir, filepath.Join(dir, key.String()))
			c, err := Open(base)
			if !test.atOpen {
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				var body []byte
				if body, err = c.Get(key); body != nil {
					t.Errorf("read %q", body)
				}
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, change(content), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBounds(t *testing.T) {
	base := t.TempDir()
	c := open(t, base)
	dir := filepath.Join(base, "deploy-ssh", "evaluations")
	now := time.Now()
	put := func(i int, age time.Duration) Key {
		t.Helper()
		key := KeyOf(fmt.Append(nil, i))
		must(t, c.Put(key, []byte("body")))
		must(t, os.Chtimes(filepath.Join(dir, key.String()), now.Add(-age), now.Add(-age)))
		return key
	}
	old := put(-1, MaxAge+time.Minute)
	left, fresh := filepath.Join(dir, unfinished+"left"), filepath.Join(dir, unfinished+"fresh")
	must(t, os.WriteFile(left, nil, 0o600))
	must(t, os.WriteFile(fresh, nil, 0o600))
	must(t, os.Chtimes(left, now.Add(-2*time.Hour), now.Add(-2*time.Hour)))
	var keys []Key
	for i := range MaxEntries + 10 {
		keys = append(keys, put(i, time.Duration(MaxEntries+20-i)*time.Minute))
		if i == 20 {
			// The first one is used, and so outlives younger ones.
			if _, err := c.Get(keys[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	must(t, c.prune(now))
	there := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	if there(filepath.Join(dir, old.String())) || there(left) || !there(fresh) {
		t.Errorf("old %v, left %v, fresh %v", there(filepath.Join(dir, old.String())), there(left), there(fresh))
	}
	for i, key := range keys {
		if got, want := there(filepath.Join(dir, key.String())), i == 0 || i > 10; got != want {
			t.Errorf("entry %d: kept %v, want %v", i, got, want)
		}
	}
	if err := c.Put(old, make([]byte, MaxEntry)); err == nil || !strings.Contains(err.Error(), "at most 32 are kept") {
		t.Errorf("got %v", err)
	}
}

// Runs at the same time see each other's answers whole or not at all.
func TestAtOnce(t *testing.T) {
	base := t.TempDir()
	key := KeyOf([]byte("key"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c, err := Open(base)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			for range 50 {
				body := bytes.Repeat([]byte{byte('a' + i)}, 10000)
				if err := c.Put(key, body); err != nil {
					t.Error(err)
				}
				got, err := c.Get(key)
				if err != nil || got != nil && (len(got) != 10000 || bytes.Count(got, got[:1]) != 10000) {
					t.Errorf("read %d bytes, %v", len(got), err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzUnseal(f *testing.F) {
	key := KeyOf([]byte("key"))
	f.Add(seal(key, []byte("body")))
	f.Add([]byte(format))
	f.Fuzz(func(t *testing.T, content []byte) {
		if body, ok := unseal(key, content); ok && !bytes.Equal(seal(key, body), content) {
			t.Errorf("%q was taken for %q", content, body)
		}
	})
}
