// Package toplevels holds NixOS-shaped toplevels for tests: a Nix library that
// makes system closures (Tree), and the files that make a Debian root boot and
// switch them (HostFiles). README.md tells what they do and how they fail.
package toplevels

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed *.nix build host
var tree embed.FS

// Tree is the Nix library: a folder to import as `import ./toplevels { }`, and
// a flake without inputs. Its files are read-only.
var Tree fs.FS = tree

// WriteTree writes Tree into the new or existing folder dir.
func WriteTree(dir string) error {
	return fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		if entry.IsDir() {
			return os.MkdirAll(path, 0o755)
		}
		data, err := tree.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o644)
	})
}

// InstallFirst is the path, on a host with HostFiles, of the program that gives
// the host its first generation: `InstallFirst TOPLEVEL`, for a toplevel that is
// valid in the host's store. It sets the profile, makes the boot entry, and
// activates and starts the toplevel as a boot would. Before that, a host runs no
// toplevel and a switch refuses with 100, as on NixOS without /run/current-system.
const InstallFirst = "/usr/lib/toplevels/install-first"

// A File is one of HostFiles. It converts to the rig's type of that name.
type File struct {
	Content string
	// Mode is the permission bits.
	Mode fs.FileMode
	// Link is never set here.
	Link string
}

// HostFiles are laid on a host's root, by absolute path, before its first boot.
// They mark it as NixOS (/etc/NIXOS) and make each boot activate the toplevel of
// the default boot entry; without one, the host boots as plain Debian.
//
// On such a host /etc/systemd/system becomes a link into the store with the
// first toplevel; units of the host itself belong in /usr/lib/systemd/system.
// What stood in /etc/systemd/system before is moved there.
func HostFiles() map[string]File {
	return map[string]File{
		"/etc/NIXOS":                 {Mode: 0o644},
		"/usr/lib/toplevels/stage-2": {Content: host("stage-2.sh"), Mode: 0o755},
		InstallFirst:                 {Content: host("install-first.sh"), Mode: 0o755},
		"/usr/lib/systemd/system/stage-2.service":               {Content: host("stage-2.service"), Mode: 0o644},
		"/usr/lib/systemd/system/sysinit.target.d/stage-2.conf": {Content: host("stage-2.conf"), Mode: 0o644},
	}
}

func host(name string) string {
	data, err := tree.ReadFile("host/" + name)
	if err != nil {
		panic(err) // the file is part of this package
	}
	return string(data)
}
