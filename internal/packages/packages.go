// Package packages tells two closures apart by the names and versions of what is in
// them. It is pure: it knows store paths as texts and reads no store.
package packages

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// Change is one package whose versions differ between two closures.
type Change struct {
	Name string `json:"name"`
	// Before and After are its versions, sorted; "" stands for a path whose name has
	// none. One of the two is empty where the package came or went.
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// Changes are what differs between two closures, each list sorted by name.
type Changes struct {
	Changed []Change `json:"changed"`
	Added   []Change `json:"added"`
	Removed []Change `json:"removed"`
	// Rebuilt counts the packages whose names and versions are the same while their
	// store paths aren't: other inputs, or an other configuration.
	Rebuilt int `json:"rebuilt"`
}

// Diff compares the store paths of two closures.
func Diff(before, after []string) Changes {
	old, new := group(before), group(after)
	c := Changes{Changed: []Change{}, Added: []Change{}, Removed: []Change{}}
	names := map[string]bool{}
	for name := range old {
		names[name] = true
	}
	for name := range new {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := old[name].versions(), new[name].versions()
		change := Change{Name: name, Before: was, After: is}
		switch {
		case len(was) == 0:
			c.Added = append(c.Added, change)
		case len(is) == 0:
			c.Removed = append(c.Removed, change)
		case !slices.Equal(was, is):
			c.Changed = append(c.Changed, change)
		case !maps.Equal(old[name].paths, new[name].paths):
			c.Rebuilt++
		}
	}
	return c
}

// pkg is what a closure has under one name.
type pkg struct {
	paths map[string]bool
	known map[string]bool // versions
}

func (p pkg) versions() []string { return slices.Sorted(maps.Keys(p.known)) }

func group(paths []string) map[string]pkg {
	all := map[string]pkg{}
	for _, p := range paths {
		name, version := Split(p)
		entry, ok := all[name]
		if !ok {
			entry = pkg{map[string]bool{}, map[string]bool{}}
			all[name] = entry
		}
		entry.paths[p], entry.known[version] = true, true
	}
	return all
}

// outputs are names of outputs that nixpkgs gives beside the first one, which stands
// for the package in a store path without a word.
var outputs = []string{
	"bin", "data", "debug", "dev", "devdoc", "dist", "doc", "getent", "info", "lib", "libgcc", "man", "modules", "out", "static", "terminfo",
}

// Split gives the package's name and version of a store path. The version begins
// after the first dash that a digit follows, as in the names that nixpkgs gives; it
// is "" where there is no such dash. The outputs of one package have the same of both.
func Split(storePath string) (name, version string) {
	name = path.Base(storePath)
	if len(name) > 33 && name[32] == '-' {
		name = name[33:]
	}
	for i := 1; i+1 < len(name); i++ {
		if name[i] == '-' && name[i+1] >= '0' && name[i+1] <= '9' {
			name, version = name[:i], name[i+1:]
			break
		}
	}
	if i := strings.LastIndexByte(version, '-'); i > 0 && slices.Contains(outputs, version[i+1:]) {
		version = version[:i]
	}
	return name, version
}
