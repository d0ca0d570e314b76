package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxBase keeps a control socket's path within what a Unix socket allows:
// 108 bytes in sockaddr_un, of which ssh takes 17 for a temporary name.
const maxBase = 40

const (
	runDirPrefix = "deploy-ssh."
	// unlockedPrefix is that of a directory that is being made.
	unlockedPrefix = "deploy-ssh-new."
)

// RunDir is the private directory of one run: generated configuration, pinned
// keys and control sockets. Its path can be pasted anywhere (see [pasteable]).
type RunDir struct {
	Path string
	lock *os.File
}

// NewRunDir makes a private directory, mode 0700, under the first of TMPDIR,
// XDG_RUNTIME_DIR and /tmp that can be written and whose path is short and plain, and removes what
// runs that are dead have left there.
func NewRunDir(getenv func(string) string) (*RunDir, error) {
	var made *RunDir
	err := errors.New("neither TMPDIR, XDG_RUNTIME_DIR nor /tmp has a short and plain path")
	for _, base := range []string{getenv("TMPDIR"), getenv("XDG_RUNTIME_DIR"), "/tmp"} {
		if base = filepath.Clean(base); !pasteable(base) || len(base) > maxBase {
			continue
		}
		sweep(base)
		if made, err = makeRunDir(base); err == nil {
			return made, nil
		}
	}
	return nil, fmt.Errorf("making the run's private directory: %w", err)
}

// makeRunDir makes a directory that is locked before it has the name by which a
// sweep finds it: another run may be sweeping at this moment.
func makeRunDir(base string) (*RunDir, error) {
	path, err := os.MkdirTemp(base, unlockedPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	final := filepath.Join(base, runDirPrefix+strings.TrimPrefix(filepath.Base(path), unlockedPrefix))
	if err == nil {
		// A lock goes with the open file, so it outlives the new name. Renaming onto
		// another run's directory fails, since that is not empty.
		err = os.Rename(path, final)
	}
	if err != nil {
		_ = os.RemoveAll(path)
		return nil, err
	}
	d := &RunDir{Path: final, lock: lock}
	living.Store(d, nil)
	return d, nil
}

// living are the directories of this process; see [Abandon].
var living sync.Map

// Abandon removes the private directories of this process's runs without waiting
// for anything, for a program that has been told twice to end.
func Abandon() {
	living.Range(func(d, _ any) bool {
		_ = os.RemoveAll(d.(*RunDir).Path)
		return true
	})
}

// Write writes a file, mode 0600, and returns its path.
func (d *RunDir) Write(name, text string) (string, error) {
	path := filepath.Join(d.Path, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("writing to the run's private directory: %w", err)
	}
	return path, nil
}

// Plain returns a path of target that can be pasted anywhere: target itself, or a
// link to it in this directory. beside are endings of files that ssh looks for
// next to target, such as ".pub"; they are linked along.
func (d *RunDir) Plain(target, name string, beside ...string) (string, error) {
	target, err := filepath.Abs(target)
	if err != nil {
		return "", err
	}
	if pasteable(target) {
		return target, nil
	}
	link := filepath.Join(d.Path, name)
	for _, ending := range append([]string{""}, beside...) {
		if _, err := os.Stat(target + ending); err != nil && ending != "" {
			continue
		}
		if err := os.Symlink(target+ending, link+ending); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("linking %s: %w", target+ending, err)
		}
	}
	return link, nil
}

// Close removes the directory. It may be called twice.
func (d *RunDir) Close() error {
	err := os.RemoveAll(d.Path)
	_ = d.lock.Close()
	living.Delete(d)
	return err
}

// sweep removes directories of runs that are dead: those whose lock is free, and
// what is an hour old and was never locked.
func sweep(base string) {
	ours := func(info fs.FileInfo) bool {
		stat, ok := info.Sys().(*syscall.Stat_t)
		return ok && int(stat.Uid) == os.Getuid()
	}
	left, _ := filepath.Glob(filepath.Join(base, runDirPrefix+"*"))
	unlocked, _ := filepath.Glob(filepath.Join(base, unlockedPrefix+"*"))
	for _, dir := range unlocked {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && ours(info) && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(dir)
		}
	}
	for _, dir := range left {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || !ours(info) {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && time.Since(info.ModTime()) > time.Hour {
				_ = os.RemoveAll(dir)
			}
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
