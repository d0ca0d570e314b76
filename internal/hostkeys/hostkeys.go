// Package hostkeys decides which host keys a node's connections trust and
// where keys of a first use are saved.
package hostkeys

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Trust tells what a node's host key is checked against.
type Trust struct {
	// Pinned is whether the node has a key of its own, which then is the only one taken.
	Pinned bool `json:"pinned"`
	// File is where keys of a first use are saved; empty when pinned, or when
	// no place was writable and ssh's own known_hosts is used.
	File string `json:"file,omitempty"`
}

// String says it for a person, after "host key".
func (t Trust) String() string {
	switch {
	case t.Pinned:
		return "as pinned"
	case t.File != "":
		return "trusted on first use, saved in " + t.File
	}
	return "trusted on first use, saved in ssh's own known_hosts"
}

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

// FirstUse finds the file for keys of a first use: beside the node's key file,
// else in a directory of ours under tempDir that is kept between runs, else
// none, which leaves ssh's default.
func FirstUse(keyFile, tempDir string) Trust {
	if keyFile != "" {
		if path, err := filepath.Abs(keyFile); err == nil {
			path = filepath.Join(filepath.Dir(path), savedName)
			if writable(path) {
				return Trust{File: path}
			}
		}
	}
	if tempDir == "" {
		tempDir = "/tmp"
	}
	dir := filepath.Join(tempDir, "deploy-ssh-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return Trust{}
	}
	if path := filepath.Join(dir, "known_hosts"); private(dir) && writable(path) {
		return Trust{File: path}
	}
	return Trust{}
}

// writable reports whether path can be written, by opening it: permission bits
// say nothing of a read-only file system. A file that this makes stays, empty.
func writable(path string) bool {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
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
