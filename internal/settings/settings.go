// Package settings layers the SSH settings of a node and remembers where each
// value came from. It is pure: it reads no file and asks nobody.
//
// The layers, each over the one before: built-in values (with DEPLOY_SSH_USER
// and DEPLOY_SSH_KEY), the shared defaults, the node's own entry. The latter
// two are the flake's, overlaid by those of DEPLOY_SSH_NODES field by field.
package settings

import (
	"maps"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/schema"
)

// SSH is one layer of settings as somebody wrote it.
// An empty field inherits the layer below, an empty list of options too.
type SSH struct {
	// Host is the address, name or ssh alias to connect to.
	Host string `json:"host"`
	// User is the login name.
	User string `json:"user"`
	// Key is the path of the private key file on the deployer.
	Key string `json:"key"`
	// HostKey is one or several public key lines; only a node entry has it.
	HostKey string `json:"hostKey"`
	// Options are bare Key=Value items of ssh_config.
	Options []string `json:"options"`
	// Elevate is sudo or doas. Only an entry of the environment's map has it here; in
	// the flake's map it stands beside the SSH settings.
	Elevate string `json:"elevate"`
}

// Value is a setting and where it came from, in words.
type Value[T any] struct {
	V      T      `json:"value"`
	Origin string `json:"origin"`
}

// Resolved is what a node's layers come to.
type Resolved struct {
	// Host is never empty. The brackets of an IPv6 address are gone.
	Host Value[string] `json:"host"`
	// User is never empty.
	User Value[string] `json:"user"`
	// Key is the path of the private key; "" means the agent, or what ssh
	// itself finds.
	Key Value[string] `json:"key"`
	// HostKeys are the pinned public keys in authorized_keys form without
	// comment; empty means trust on first use.
	HostKeys Value[[]string] `json:"hostKeys"`
	// Options are Key=Value items, first wins; may be empty.
	Options Value[[]string] `json:"options"`
}

// Origins of values that no operator wrote.
const (
	OriginBuiltIn  = "built-in"
	OriginRoster   = "the node's host"
	OriginNodeName = "the node's name"
)

// Problem is one thing wrong with the settings: where, and what.
type Problem struct {
	// Source is the layer's name: an environment variable, or the flake attribute.
	Source string
	// Path is the place in it, such as nodes.web.options[1]; may be empty.
	Path string
	// Text says what is wrong and what is wanted.
	Text string
}

// String is the problem on one line.
func (p Problem) String() string {
	var b strings.Builder
	for _, part := range []string{p.Source, p.Path} {
		if part != "" && b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(part)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Error is all that is wrong with the settings; no host was contacted.
type Error struct {
	Problems []Problem
}

// Error lists the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err is nil when there is no problem.
func Err(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &Error{Problems: problems}
}

// Node is what the flake says about one node.
type Node struct {
	Name string
	// Host is the roster host; may be empty.
	Host string
	// SSH is the node's own entry.
	SSH SSH
	// Elevate is sudo, doas, or "" to inherit.
	Elevate string
	// IgnoreUnits are unit names and globs.
	IgnoreUnits []string
}

// Flake is the flake's part of the settings.
type Flake struct {
	// Source names the flake attribute in origins, as .#nodes.
	Source   string
	Defaults SSH
	// Elevate is the shared way to become root: sudo, doas, or "".
	Elevate string
	// Nodes in list order; names are unique.
	Nodes []Node
}

// Elevation is how the node's login user becomes root; the value is "" for not at all.
func (f Flake) Elevation(node Node, env Environment) Value[string] {
	v := Value[string]{"", OriginBuiltIn}
	field := schema.Location([]string{"nodes", node.Name, "elevate"})
	over(&v, f.Elevate, f.Source+" defaults.elevate")
	over(&v, env.Defaults.Elevate, KeyNodes+" defaults.elevate")
	over(&v, node.Elevate, f.Source+" "+field)
	over(&v, env.Nodes[node.Name].Elevate, KeyNodes+" "+field)
	return v
}

// Resolve layers the settings of every node of a fleet, in the order of the
// flake. The error is an [*Error] with all problems at once.
func Resolve(flake Flake, env Environment) ([]Resolved, error) {
	problems := unknownNodes(flake, env)
	shared := []layer{
		{source: flake.Source, path: "defaults.ssh", ssh: flake.Defaults},
		{source: KeyNodes, path: "defaults", ssh: env.Defaults},
	}
	for _, l := range shared {
		problems = append(problems, l.check()...)
	}
	resolved := make([]Resolved, 0, len(flake.Nodes))
	for _, node := range flake.Nodes {
		r, found := resolve(flake.Source, node, env, shared)
		resolved = append(resolved, r)
		problems = append(problems, found...)
	}
	if err := Err(problems); err != nil {
		return nil, err
	}
	return resolved, nil
}

// ResolveOne layers the settings of one node from the environment alone, for
// a caller that runs the transport for a single node and has no flake. The
// host is the roster host and may be empty. Entries of other nodes are not its
// business. The error is an [*Error] with all problems at once.
func ResolveOne(name, host string, env Environment) (Resolved, error) {
	if !schema.Matches("name", name) {
		return Resolved{}, Err([]Problem{{Text: "the node " + schema.Shown("name", name) + "wanted " + schema.Description("name")}})
	}
	env.Nodes = map[string]SSH{name: env.Nodes[name]}
	resolved, err := Resolve(Flake{Nodes: []Node{{Name: name, Host: host}}}, env)
	if err != nil {
		return Resolved{}, err
	}
	return resolved[0], nil
}

// layer is one set of settings with its name.
type layer struct {
	source, path string
	ssh          SSH
}

func (l layer) origin() string { return l.source + " " + l.path }

// resolve layers one node's settings over the shared ones, which are checked already.
func resolve(source string, node Node, env Environment, shared []layer) (Resolved, []Problem) {
	own := []layer{
		{source: source, path: schema.Location([]string{"nodes", node.Name, "ssh"}), ssh: node.SSH},
		{source: KeyNodes, path: schema.Location([]string{"nodes", node.Name}), ssh: env.Nodes[node.Name]},
	}
	problems := node.check(source)
	r := Resolved{
		Host: Value[string]{node.Name, OriginNodeName},
		User: Value[string]{"root", OriginBuiltIn},
		Key:  Value[string]{"", OriginBuiltIn},
		// The two lists are there even when empty, so that JSON shows [].
		HostKeys: Value[[]string]{[]string{}, OriginBuiltIn},
		Options:  Value[[]string]{[]string{}, OriginBuiltIn},
	}
	over(&r.Host, node.Host, OriginRoster)
	over(&r.User, env.User, KeyUser)
	over(&r.Key, env.Key, KeyKey)
	for _, l := range append(shared[:len(shared):len(shared)], own...) {
		over(&r.User, l.ssh.User, l.origin())
		over(&r.Key, l.ssh.Key, l.origin())
		if len(l.ssh.Options) > 0 {
			r.Options = Value[[]string]{l.ssh.Options, l.origin()}
		}
	}
	for _, l := range own {
		problems = append(problems, l.check()...)
		over(&r.Host, l.ssh.Host, l.origin())
		if keys, err := ParseHostKeys(l.ssh.HostKey); err == nil && len(keys) > 0 {
			r.HostKeys = Value[[]string]{keys, l.origin()}
		}
	}
	r.Host.V = unbracket(r.Host.V)
	return r, problems
}

// check reports what is wrong with a node beside its SSH settings.
func (n Node) check(source string) []Problem {
	var problems []Problem
	add := func(err error, path ...string) {
		if err != nil {
			path = append([]string{"nodes", n.Name}, path...)
			problems = append(problems, Problem{Source: source, Path: schema.Location(path), Text: err.Error()})
		}
	}
	add(CheckHost(n.Host), "host")
	for i, glob := range n.IgnoreUnits {
		add(CheckUnit(glob), "ignoreUnits", schema.Index(i))
	}
	return problems
}

func over(v *Value[string], by, origin string) {
	if by != "" {
		*v = Value[string]{by, origin}
	}
}

// check reports what is wrong in a layer beyond its shape.
func (l layer) check() []Problem {
	var problems []Problem
	add := func(field string, err error) {
		if err != nil {
			problems = append(problems, Problem{Source: l.source, Path: l.path + "." + field, Text: err.Error()})
		}
	}
	add("host", CheckHost(l.ssh.Host))
	add("user", CheckUser(l.ssh.User))
	add("key", CheckKey(l.ssh.Key))
	_, err := ParseHostKeys(l.ssh.HostKey)
	add("hostKey", err)
	for i, item := range l.ssh.Options {
		add("options"+schema.Index(i), CheckOption(item))
	}
	return problems
}

// unknownNodes are entries of the environment that name no node of the flake.
func unknownNodes(flake Flake, env Environment) []Problem {
	var names []string
	known := map[string]bool{}
	for _, node := range flake.Nodes {
		names = append(names, node.Name)
		known[node.Name] = true
	}
	var problems []Problem
	hints := hinter{known: names}
	for _, name := range slices.Sorted(maps.Keys(env.Nodes)) {
		if !known[name] {
			problems = append(problems, Problem{
				Source: KeyNodes, Path: schema.Location([]string{"nodes", name}),
				Text: "the flake has no such node" + hints.hint(name),
			})
		}
	}
	return problems
}
