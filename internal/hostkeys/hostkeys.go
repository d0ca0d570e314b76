// Package hostkeys decides which host keys a node's connections trust and
// where keys of a first use are saved.
package hostkeys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// PinFile returns the known_hosts text for pinned public keys. The host pattern
// is `*`: the file is used for one node alone, and so it holds through ports,
// aliases, rewritten names and hops. See sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.
func PinFile(publicKeys []string) string {
	var b strings.Builder
	for _, key := range publicKeys {
		b.WriteString("* " + key + "\n")
	}
	return b.String()
}

// savedName is the file beside a node's key file.
const savedName = "deploy-ssh.known_hosts"

// Saved finds the file for keys of a first use: beside the node's key file, else
// in a directory of ours under tempDir that is kept between runs, else "",
// which leaves ssh's default. It makes that directory, but not the file.
func Saved(keyFile, tempDir string) string {
	if keyFile != "" {
		if path, err := filepath.Abs(keyFile); err == nil {
			path = filepath.Join(filepath.Dir(path), savedName)
			if trusted(path) && writable(path) {
				return path
			}
		}
	}
	if tempDir == "" {
		tempDir = "/tmp"
	}
	dir := filepath.Join(tempDir, "deploy-ssh-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return ""
	}
	if path := filepath.Join(dir, "known_hosts"); private(dir) && writable(path) {
		return path
	}
	return ""
}

// writable reports whether the file at path can be written or made, as access(2)
// has it, which knows of read-only file systems and of immutable files too.
func writable(path string) bool {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unix.Faccessat(unix.AT_FDCWD, filepath.Dir(path), unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
	case err != nil || info.IsDir():
		return false
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS) == nil
}

// trusted reports whether nobody but us and root can have put a file at path or
// can put one there: a key file in a shared folder must not bring along host keys
// that somebody else has saved.
func trusted(path string) bool {
	own := func(info fs.FileInfo) bool {
		stat, ok := info.Sys().(*syscall.Stat_t)
		return ok && (int(stat.Uid) == os.Getuid() || stat.Uid == 0)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil || !own(dir) || dir.Mode().Perm()&0o022 != 0 {
		return false
	}
	file, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return err == nil && file.Mode().IsRegular() && own(file) && file.Mode().Perm()&0o022 == 0
}

// private reports whether dir is a directory, no link, of ours and closed to
// everybody else: in a shared temporary directory anybody may make one of this name.
func private(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
