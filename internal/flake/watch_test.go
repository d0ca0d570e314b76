package flake

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// tree is a folder with a few files, and functions to change it.
type tree struct {
	t   *testing.T
	dir string
}

func (tr tree) write(name, text string) {
	tr.t.Helper()
	path := filepath.Join(tr.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) must(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatal(err)
	}
}

func TestLookAt(t *testing.T) {
	tr := tree{t, t.TempDir()}
	tr.write("flake.nix", "a")
	tr.write("dir/file", "a")
	tr.write("dir/flake.lock", "{}")
	tr.write(".git/HEAD", "ref: x")
	tr.write(".git/index", "i")
	tr.write(".git/objects/aa/bb", "o")
	elsewhere := tree{t, t.TempDir()}
	elsewhere.write("HEAD", "ref: y")
	tr.write("sub/.git", "gitdir: "+elsewhere.dir+"\n")
	link := filepath.Join(t.TempDir(), "link")
	tr.must(os.Symlink(tr.dir, link))
	trees := []string{link}
	look := func() [32]byte {
		t.Helper()
		seen, err := lookAt(t.Context(), trees)
		tr.must(err)
		return seen
	}
	old := time.Now().Add(-time.Hour)
	for _, test := range []struct {
		what   string
		change func()
		seen   bool
	}{
		{"nothing", func() {}, false},
		{"reading", func() { _, err := os.ReadFile(filepath.Join(tr.dir, "flake.nix")); tr.must(err) }, false},
		{"writing", func() { tr.write("dir/file", "b") }, true},
		{"writing the same, with the old times", func() {
			tr.write("dir/file", "b")
			tr.must(os.Chtimes(filepath.Join(tr.dir, "dir/file"), old, old))
		}, true},
		{"a lock file of Nix", func() { tr.write("dir/flake.lock", "{ }") }, true},
		{"adding and removing", func() {
			tr.write("dir/new", "")
			tr.must(os.Remove(filepath.Join(tr.dir, "dir/new")))
		}, true},
		{"a mode", func() { tr.must(os.Chmod(filepath.Join(tr.dir, "dir/file"), 0o755)) }, true},
		{"Git's index", func() { tr.write(".git/index", "j") }, true},
		{"Git's HEAD", func() { tr.write(".git/HEAD", "ref: z") }, true},
		{"the HEAD of a linked worktree", func() { elsewhere.write("HEAD", "ref: z") }, true},
		{"an object", func() { tr.write(".git/objects/aa/cc", "o") }, false},
		{"a lock of Git", func() {
			tr.write(".git/index.lock", "")
			tr.must(os.Remove(filepath.Join(tr.dir, ".git/index.lock")))
		}, false},
		{"another tree at its place", func() {
			tr.must(os.Remove(link))
			tr.must(os.Symlink(t.TempDir(), link))
		}, true},
	} {
		// The clock of a file system has a coarse grain.
		time.Sleep(10 * time.Millisecond)
		before := look()
		test.change()
		if got := look() != before; got != test.seen {
			t.Errorf("%s: seen %v, want %v", test.what, got, test.seen)
		}
	}
	if _, err := lookAt(t.Context(), []string{"/no/such"}); err == nil {
		t.Error("a tree that is not there was looked at")
	}
}

func TestContentOf(t *testing.T) {
	tr := tree{t, t.TempDir()}
	files := "a\x00link\x00gone\x00dir/b\x00"
	tr.write("a", "1")
	tr.write("dir/b", "2")
	tr.write("other", "3")
	tr.must(os.Symlink("a", filepath.Join(tr.dir, "link")))
	content := func() [32]byte {
		t.Helper()
		h, err := contentOf(t.Context(), listing{files}, []string{tr.dir})
		tr.must(err)
		return h
	}
	for _, test := range []struct {
		what   string
		change func()
		seen   bool
	}{
		{"nothing", func() {}, false},
		{"a file that Git doesn't know", func() { tr.write("other", "4") }, false},
		{"the same again", func() { tr.write("a", "1") }, false},
		{"a file", func() { tr.write("a", "2") }, true},
		{"a file in a folder", func() { tr.write("dir/b", "1") }, true},
		{"a file that comes", func() { tr.write("gone", "") }, true},
		{"a program", func() { tr.must(os.Chmod(filepath.Join(tr.dir, "a"), 0o755)) }, true},
		{"a link", func() {
			tr.must(os.Remove(filepath.Join(tr.dir, "link")))
			tr.must(os.Symlink("other", filepath.Join(tr.dir, "link")))
		}, true},
		{"what Git knows", func() { files += "other\x00" }, true},
	} {
		before := content()
		test.change()
		if got := content() != before; got != test.seen {
			t.Errorf("%s: seen %v, want %v", test.what, got, test.seen)
		}
	}
	if _, err := contentOf(t.Context(), child.Local{Env: []string{"PATH=" + os.Getenv("PATH")}}, []string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "git ls-files") {
		t.Errorf("what is no repository: %v", err)
	}
}

// listing is a Git that knows these files.
type listing struct{ files string }

func (l listing) Run(context.Context, child.Command) (child.Result, error) {
	return child.Result{Stdout: []byte(l.files)}, nil
}
