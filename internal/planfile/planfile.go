// Package planfile is the form of a plan that is kept in a file, to be applied later.
//
// It is pure: texts in, values out. A file that is not whole, was edited, or is of
// another kind or version is an error that says so; what it says of hosts is compared
// with them again before anything is written there.
package planfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
)

// kind and version are the head of every plan file. The version grows whenever an
// older program could misread a newer file.
const (
	kind    = "deploy-ssh plan"
	version = 1
)

// MaxAge is how old a plan may be to be applied.
const MaxAge = 7 * 24 * time.Hour

// skew is how far ahead the clock of another machine may be.
const skew = 10 * time.Minute

// MaxSize is how many bytes a plan file may have. A thousand nodes have some ten
// million when every package changes.
const MaxSize = 256 << 20

// Plan is what a plan file holds. It has no secret.
type Plan struct {
	// Program is the version of the program that made it.
	Program string    `json:"program"`
	Created time.Time `json:"created"`
	Source  Source    `json:"source"`
	// ClientConfig is the SHA-256 of the ssh client configuration that the operator
	// gave; empty when none was.
	ClientConfig string `json:"clientConfig"`
	Nodes        []Node `json:"nodes"`
}

// Source is where the map came from. Arguments for Nix are not kept, since they can
// hold a token; only whether there were any is.
type Source struct {
	// Ref is the flake reference; empty where the nodes came from the environment.
	Ref string `json:"ref"`
	// Dir is the directory in which it means the flake.
	Dir string `json:"dir"`
	// Whole is whether the plan is of all nodes of the map.
	Whole   bool `json:"whole"`
	NixArgs bool `json:"nixArgs"`
	// Combined is whether it is of the one system of all nodes.
	Combined bool `json:"combined,omitempty"`
	Impure   bool `json:"impure"`
}

// Node is one node of a plan.
type Node struct {
	Name string `json:"name"`
	// Toplevel is the system to deploy; empty when the node did not evaluate.
	Toplevel string   `json:"toplevel"`
	Settings Settings `json:"settings"`
	// Planned is what was foreseen, with the host as it was seen.
	Planned report.Planned `json:"planned"`
}

// envelope is the file: the plan's own text, and a sum of it which a slip of an
// editor breaks. It guards against accidents, not against people.
type envelope struct {
	Kind    string          `json:"kind"`
	Version int             `json:"version"`
	Sum     string          `json:"sha256"`
	Plan    json.RawMessage `json:"plan"`
}

// Encode makes the text of a plan file.
func Encode(p Plan) ([]byte, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(envelope{kind, version, sum(body), body}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// sum is of the plan's text without its layout.
func sum(body []byte) string {
	digest := sha256.Sum256(body)
	return hex.EncodeToString(digest[:])
}

// Decode reads a plan file; now is the time at which its age counts.
func Decode(text []byte, now time.Time) (Plan, error) {
	var e envelope
	if err := one(text, &e, false); err != nil {
		return Plan{}, fmt.Errorf("it is no plan of deploy-ssh, or not a whole one: %w", err)
	}
	switch {
	case e.Kind != kind:
		return Plan{}, errors.New("it is no plan of deploy-ssh")
	case e.Version > version:
		return Plan{}, fmt.Errorf("its version is %d, made by a newer deploy-ssh; this one reads version %d", e.Version, version)
	case e.Version < version:
		return Plan{}, fmt.Errorf("its version %d is too old for this deploy-ssh, which reads version %d; plan again", e.Version, version)
	}
	var body bytes.Buffer
	if err := json.Compact(&body, e.Plan); err != nil || sum(body.Bytes()) != e.Sum {
		return Plan{}, errors.New("it was changed after it was made, or is damaged: its sum is not that of its content; plan again")
	}
	var p Plan
	if err := one(e.Plan, &p, true); err != nil {
		return Plan{}, fmt.Errorf("its content makes no sense: %w", err)
	}
	if err := p.check(); err != nil {
		return Plan{}, fmt.Errorf("its content makes no sense: %w", err)
	}
	switch age := now.Sub(p.Created); {
	case age > MaxAge:
		return Plan{}, fmt.Errorf("it was made %s, which is more than %d days ago; plan again", p.Created.Local().Format("2006-01-02 15:04"), MaxAge/(24*time.Hour))
	case age < -skew:
		return Plan{}, fmt.Errorf("it was made in the future, %s; is a clock wrong?", p.Created.Local().Format("2006-01-02 15:04"))
	}
	return p, nil
}

// one decodes exactly one value.
func one(text []byte, into any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("it ends early")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return nil
}

// check refuses a plan that no program of this version makes.
func (p Plan) check() error {
	if len(p.Nodes) == 0 {
		return errors.New("it has no node")
	}
	seen := map[string]bool{}
	for _, n := range p.Nodes {
		switch {
		case n.Name == "" || strings.ContainsAny(n.Name, ", \t\n*?@"):
			return fmt.Errorf("%q is no node's name", n.Name)
		case seen[n.Name]:
			return fmt.Errorf("the node %s is in it twice", n.Name)
		case n.Planned.Node != n.Name, n.Planned.Wanted != n.Toplevel:
			return fmt.Errorf("what was planned of the node %s is of another node or system", n.Name)
		case n.Toplevel != "" && !storePath(n.Toplevel):
			return fmt.Errorf("the system of the node %s, %q, is no store path", n.Name, n.Toplevel)
		}
		seen[n.Name] = true
	}
	return nil
}

// storePath reports whether a text can be a store path: it goes to programs and
// scripts, so that it has nothing that these could take for anything else.
func storePath(p string) bool {
	name, ok := strings.CutPrefix(p, "/nix/store/")
	if !ok || len(name) < 34 || name[32] != '-' {
		return false
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("+-._?=", r)) {
			return false
		}
	}
	return true
}
