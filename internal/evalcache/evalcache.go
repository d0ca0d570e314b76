// Package evalcache keeps answers of evaluations in a directory of the user.
//
// It knows nothing of Nix: an answer is bytes under a key, and whoever makes the
// key promises that the same key has the same answer. What it promises itself is
// that an answer is whole, is the one that was kept under that key, and was kept
// by this user: what others could have written is not read.
package evalcache

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Bounds of what is kept. An answer for a thousand nodes has about half a mebibyte.
const (
	MaxEntries = 200
	MaxBytes   = 256 << 20
	MaxEntry   = 32 << 20
	// MaxAge is counted from the last use.
	MaxAge = 30 * 24 * time.Hour
)

// folders lead from the user's cache directory to the entries.
var folders = []string{"deploy-ssh", "evaluations"}

// format is the first line of each entry. It changes when an entry means something else.
const format = "deploy-ssh evaluation 1\n"

// unfinished is how the names of entries begin that are being written.
const unfinished = "new-"

// Key names an answer.
type Key [sha256.Size]byte

// KeyOf is the key of all of the parts, in their order.
func KeyOf(parts ...[]byte) Key {
	h := sha256.New()
	for _, part := range parts {
		// With the length in front no two lists of parts read alike.
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return Key(h.Sum(nil))
}

func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Cache is an open cache.
type Cache struct {
	root *os.Root
	path string
}

// Open opens the cache below the user's cache directory, such as ~/.cache, and makes
// it where there is none. It refuses directories that others than this user own or
// can write to. The caller must close it.
func Open(base string) (*Cache, error) {
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	c := &Cache{root, base}
	// The permissions of the user's cache directory are the user's affair. As for its
	// owner: sudo may leave HOME as it was, and root's entries would be in the way there.
	if err := c.trusted(0); err != nil {
		_ = c.Close()
		return nil, err
	}
	for _, name := range folders {
		if err := c.enter(name); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	return c, nil
}

// enter goes on into a directory of the cache's own, and makes it where it is missing.
func (c *Cache) enter(name string) error {
	path := filepath.Join(c.path, name)
	if err := c.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := c.root.Lstat(name); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is no directory", path)
	}
	inner, err := c.root.OpenRoot(name)
	if err != nil {
		return err
	}
	_ = c.root.Close()
	c.root, c.path = inner, path
	return c.trusted(0o022)
}

// trusted checks the owner of the open directory, and that none of the bits of its mode is set.
func (c *Cache) trusted(bits fs.FileMode) error {
	info, err := c.root.Stat(".")
	if err != nil {
		return err
	}
	return trusted(c.path, info, bits)
}

func trusted(path string, info fs.FileInfo, bits fs.FileMode) error {
	owner, self := info.Sys().(*syscall.Stat_t).Uid, os.Geteuid()
	switch {
	case int(owner) != self:
		return fmt.Errorf("%s belongs to user %d, and this is user %d", path, owner, self)
	case info.Mode().Perm()&bits != 0:
		return fmt.Errorf("%s has the mode %04o, which lets others in", path, info.Mode().Perm())
	}
	return nil
}

// Close closes the cache.
func (c *Cache) Close() error { return c.root.Close() }

// Get returns the answer that is kept under a key, or nil when none is. The error
// says of one that is there why it can't be used.
func (c *Cache) Get(key Key) ([]byte, error) {
	name := key.String()
	path := filepath.Join(c.path, name)
	before, err := c.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	file, err := c.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(before, info) {
		return nil, nil // another run is just replacing it
	}
	if err := trusted(path, info, 0o077); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, MaxEntry+1))
	if err != nil {
		return nil, err
	}
	body, ok := unseal(key, content)
	if !ok {
		return nil, fmt.Errorf("%s is damaged", path)
	}
	// Bounds go by the last use.
	now := time.Now()
	_ = c.root.Chtimes(name, now, now)
	return body, nil
}

// Put keeps an answer under a key, in place of what was there, and drops what is
// beyond the bounds.
func (c *Cache) Put(key Key, body []byte) error {
	content := seal(key, body)
	if len(content) > MaxEntry {
		return fmt.Errorf("the answer has %d MiB; at most %d are kept", len(content)>>20, MaxEntry>>20)
	}
	name := unfinished + rand.Text()
	file, err := c.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = c.root.Rename(name, key.String())
	}
	if err != nil {
		_ = c.root.Remove(name)
		return err
	}
	return c.prune(time.Now())
}

// prune drops what is old, what was left half written, and the least used beyond
// the bounds.
func (c *Cache) prune(now time.Time) error {
	entries, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return err
	}
	var kept []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		age := time.Duration(0)
		if err == nil {
			age = now.Sub(info.ModTime())
		}
		switch {
		case err != nil:
			// Another run dropped it.
		case age > MaxAge, strings.HasPrefix(info.Name(), unfinished) && age > time.Hour:
			_ = c.root.Remove(info.Name())
		case !strings.HasPrefix(info.Name(), unfinished):
			kept = append(kept, info)
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	total := int64(0)
	for i, info := range kept {
		total += info.Size()
		if i >= MaxEntries || total > MaxBytes {
			_ = c.root.Remove(info.Name())
		}
	}
	return nil
}

// seal puts in front of an answer what proves that it is whole and belongs to its key.
func seal(key Key, body []byte) []byte {
	return slices.Concat([]byte(format+sum(key, body)+"\n"), body)
}

func unseal(key Key, content []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(content, []byte(format))
	if !ok {
		return nil, false
	}
	seal, body, ok := bytes.Cut(rest, []byte("\n"))
	return body, ok && string(seal) == sum(key, body)
}

func sum(key Key, body []byte) string { return KeyOf(key[:], body).String() }
