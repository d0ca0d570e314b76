// Package peers knows how other tools that deploy NixOS name things, and what
// to write here instead.
//
// One table is read by errors (an unknown field or flag that is one of theirs
// is answered with ours) and printed in the migration guides. The names are
// those of each tool's own documentation and source.
package peers

import (
	"slices"
	"strings"
)

// Tool is another tool's name, as it writes it.
type Tool string

const (
	Colmena      Tool = "colmena"
	DeployRS     Tool = "deploy-rs"
	Morph        Tool = "morph"
	Wire         Tool = "wire"
	NixosRebuild Tool = "nixos-rebuild"
)

// Kind is what a row is about.
type Kind string

const (
	// Field is a field or option of a tool's node map.
	Field Kind = "field"
	// Flag is a flag of its command line, Theirs without dashes.
	Flag Kind = "flag"
	// Verb is a word of its command line.
	Verb Kind = "verb"
	// Variable is an environment variable.
	Variable Kind = "variable"
)

// Row is one thing of theirs.
type Row struct {
	Kind  Kind
	Tools []Tool
	// Theirs is the name, for a field its last step, which is unique among fields.
	Theirs string
	// In is where a field stands in their map, such as deployment; may be empty.
	In string
	// Ours is what to write: a field of a node such as ssh.user, a line of the map,
	// a flag, or a whole command. Empty when there is nothing to write.
	Ours string
	// Note says how ours differs, or why there is none. Without Ours it is never empty.
	Note string
	// Shared says that the name has a meaning of its own here, so that no error
	// may be answered with this row.
	Shared bool
}

// Full is a field's name with its place.
func (r Row) Full() string {
	if r.In == "" {
		return r.Theirs
	}
	return r.In + "." + r.Theirs
}

// Names lists the tools as a sentence does.
func (r Row) Names() string {
	names := make([]string, len(r.Tools))
	for i, t := range r.Tools {
		names[i] = string(t)
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// Remedy is the end of an error about this row: what to write, or why nothing.
func (r Row) Remedy() string {
	switch {
	case r.Ours == "":
		return r.Note
	case r.Note == "":
		return "write " + r.Ours
	}
	return "write " + r.Ours + "; " + r.Note
}

// Find returns the row of a name, regardless of case. Names that mean something
// here are not found.
func Find(kind Kind, name string) (Row, bool) {
	for _, r := range table {
		if r.Kind == kind && !r.Shared && strings.EqualFold(r.Theirs, name) {
			return r, true
		}
	}
	return Row{}, false
}

// Of returns a tool's rows of some kinds, in the order of the guides.
func Of(tool Tool, kinds ...Kind) []Row {
	var rows []Row
	for _, kind := range kinds {
		for _, r := range table {
			if r.Kind == kind && slices.Contains(r.Tools, tool) {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// Table returns all rows. The caller owns the slice.
func Table() []Row { return slices.Clone(table) }
