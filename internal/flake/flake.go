// Package flake asks Nix for the node map of a flake and builds its systems.
//
// The map is evaluated with the expression of nix/contract.nix, which makes
// one form of all that people write, forces only the selected systems and
// builds nothing. What Nix answers is checked against nix/schema.json.
package flake

import (
	"io"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
)

// Default limits of the two steps that wait for Nix.
const (
	EvaluationLimit = 30 * time.Minute
	BuildLimit      = 12 * time.Hour
)

// keepLimit bounds the making of links, for which nothing is built.
const keepLimit = 5 * time.Minute

// features lets the program work where the new command line isn't enabled.
var features = []string{"--extra-experimental-features", "nix-command flakes"}

// Request says what to evaluate.
type Request struct {
	// Ref is the flake reference with the attribute, as .#nodes.
	Ref string
	// Include and Exclude select nodes; Include nil selects all.
	Include, Exclude []Selector
	// Given are names of nodes whose systems are not evaluated, because the caller
	// has them from elsewhere.
	Given []string
	// Combined asks for the map's combined system: the first node is selected with that
	// for its toplevel, and no other. There must be no Include, Exclude or Given.
	Combined bool
	// SettingsOnly leaves all systems alone: no node has a toplevel or an
	// EvalError then. It is for what looks at settings, and quick.
	SettingsOnly bool
	// Args are further arguments for Nix, from behind `--`.
	Args []string
	// Options are settings of Nix, each a name and a value.
	Options [][2]string
	// Impure and ShowTrace are Nix's own flags of that name.
	Impure, ShowTrace bool
	// Stderr receives what Nix says while it says it; nil means nobody.
	Stderr io.Writer
}

// Map is the node map of a flake.
type Map struct {
	// Ref is the reference that was asked for.
	Ref string
	// Ordered is false when the nodes came from an attribute set without
	// `order`; they go by name then.
	Ordered bool
	// Defaults are the shared SSH settings.
	Defaults settings.SSH
	// Elevate is the shared way to become root: sudo, doas, or "" for none.
	Elevate string
	// Nodes are all nodes, selected or not, in order. Their names are unique.
	Nodes []Node
	// Combined says that the selected node's toplevel is the system of all nodes.
	Combined bool
	// Evaluation tells how the map came about.
	Evaluation Evaluation
}

// Expect is the identity that a host must have. An empty field is not compared.
type Expect struct {
	// MachineID is the host's /etc/machine-id.
	MachineID string `json:"machineId,omitempty"`
	// HostName is the host's own name, as its hostname prints it.
	HostName string `json:"hostName,omitempty"`
}

// Node is one node of a flake.
type Node struct {
	Name string
	// Host is the roster host; may be empty.
	Host string
	Tags []string
	// SSH is the node's own entry.
	SSH settings.SSH
	// Elevate is the node's own way to become root; "" inherits.
	Elevate string
	// Expect is who the host must be.
	Expect Expect
	// IgnoreUnits are names and globs of units whose failure doesn't count.
	IgnoreUnits []string
	// Selected is false when the request left the node out.
	// The fields below are empty then.
	Selected bool
	// Toplevel is the store path of the system; "" when it didn't evaluate.
	Toplevel string
	// DrvPath is its derivation, which is in the store; "" when the map names
	// a bare store path.
	DrvPath string
	// System is the platform, as x86_64-linux; "" when it isn't known.
	System string
	// EvalError is why this node alone doesn't evaluate, in Nix's words.
	EvalError string
}

// MapError says that there is no usable node map. No host was contacted.
type MapError struct {
	Ref string
	// Problems are what is wrong with the map; empty when Nix gave none.
	Problems []settings.Problem
	// Cause is Nix's own error when there is no map to judge. It is a
	// [*child.Error] where a program failed.
	Cause error
}

// Error names the reference, then lists the problems or quotes Nix.
func (e *MapError) Error() string {
	if e.Cause != nil {
		return "evaluating " + e.Ref + ": " + e.Cause.Error()
	}
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	lines := []string{"the node map " + e.Ref + " can't be used:"}
	for _, p := range e.Problems {
		p.Source = ""
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the cause.
func (e *MapError) Unwrap() error { return e.Cause }

// words is what a failed child said, or the error itself.
func words(err error) string {
	if failed, ok := err.(*child.Error); ok && failed.Stderr != "" && failed.Cause == nil {
		return failed.Stderr
	}
	return err.Error()
}

// fromError is Nix's words from its first error on, or all of them when there is none.
func fromError(text string) string {
	if _, after, found := strings.Cut("\n"+text, "\nerror:"); found {
		return "error:" + after
	}
	return text
}

// withoutOwnFrames takes from Nix's words the frames of its trace that lie in
// the expression of this program (Nix calls it «string»): they are nothing
// that the operator wrote.
func withoutOwnFrames(text string) string {
	var kept []string
	for _, block := range strings.Split(text, "\n\n") {
		head, frame, found := strings.Cut(block, "\n")
		if !strings.HasPrefix(strings.TrimSpace(head), "…") && found {
			// The first frame follows the word error: without a blank line.
			if strings.HasPrefix(strings.TrimSpace(frame), "…") && strings.Contains(frame, "\n         at «string»:") {
				kept = append(kept, head)
				continue
			}
		}
		if strings.HasPrefix(strings.TrimSpace(head), "…") && strings.HasPrefix(strings.TrimSpace(frame), "at «string»:") {
			continue
		}
		kept = append(kept, block)
	}
	return withoutEmptyTrace(strings.Join(kept, "\n\n"))
}

// withoutEmptyTrace is the error alone where nothing is left of its trace. A remark
// on its truncation is about frames that are not the operator's either, then.
func withoutEmptyTrace(text string) string {
	rest, found := strings.CutPrefix(text, "error:\n")
	if !found {
		return text
	}
	rest = strings.TrimSpace(rest)
	if after, found := strings.CutPrefix(rest, "(stack trace truncated;"); found {
		_, after, _ = strings.Cut(after, "\n")
		rest = strings.TrimSpace(after)
	}
	if !strings.HasPrefix(rest, "error: ") {
		return text
	}
	return strings.ReplaceAll(rest, "\n       ", "\n")
}
