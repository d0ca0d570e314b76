package flake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/schema"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
)

// Evaluator evaluates node maps.
type Evaluator struct {
	Runner child.Runner
	// Limit bounds one evaluation as a whole; 0 means [EvaluationLimit].
	Limit time.Duration
	// Keep is where answers of evaluations are kept; nil for nowhere.
	Keep *Keep
}

// session is one call of [Evaluator.Evaluate].
type session struct {
	Evaluator
	// kept is nil when the cache isn't used.
	kept *kept
	// evaluations counts the runs of nix eval.
	evaluations int
	how         Evaluation
}

// Evaluate returns the node map with the systems of the selected nodes.
// Nothing is built, and systems of other nodes are not evaluated.
//
// All nodes are evaluated together. Where that fails, or a node throws, the
// nodes concerned are evaluated one by one, and those that don't evaluate
// carry their EvalError. The error is a [*MapError] when there is no usable
// map; it wraps the context's error when that ended first.
func (e Evaluator) Evaluate(ctx context.Context, r Request) (Map, error) {
	limit := e.Limit
	if limit == 0 {
		limit = EvaluationLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("evaluation took longer than %v", limit))
	defer cancel()
	if r.Ref == "" || strings.HasPrefix(r.Ref, "-") {
		return Map{}, &MapError{Ref: r.Ref, Cause: fmt.Errorf("%q is no flake reference; wanted one such as .#nodes", r.Ref)}
	}
	s := &session{Evaluator: e}
	s.open(ctx, r)
	defer s.close()
	m, err := s.evaluate(ctx, r)
	if err != nil {
		return Map{}, err
	}
	s.keep(ctx)
	m.Evaluation = s.how
	return m, nil
}

// open opens the cache, where there is one to use.
func (s *session) open(ctx context.Context, r Request) {
	if s.Keep == nil {
		return
	}
	var err error
	if s.kept, err = s.Keep.open(ctx, s.Runner, r); err != nil {
		s.distrust(err)
	}
}

func (s *session) close() {
	if s.kept != nil {
		_ = s.kept.cache.Close()
	}
}

// distrust goes on without the cache.
func (s *session) distrust(err error) {
	s.how.Unkept = firstLine(err)
	if errors.As(err, new(untrusted)) {
		s.how.Warnings = append(s.how.Warnings, "the evaluation cache is not used: "+err.Error())
	}
}

// keep leaves this session's answers to later ones.
func (s *session) keep(ctx context.Context) {
	s.how.Cached = s.kept != nil && s.evaluations == 0
	if s.kept == nil {
		return
	}
	if err := s.kept.keep(ctx); err != nil {
		s.how.Unkept = firstLine(err)
	}
}

// evaluate is [Evaluator.Evaluate] itself.
func (s *session) evaluate(ctx context.Context, r Request) (Map, error) {
	force := forceCaught
	if r.SettingsOnly {
		force = forceNone
	}
	doc, err := s.ask(ctx, r, force)
	var stopped *child.Error
	if errors.As(err, &stopped) && stopped.Cause == nil && !r.SettingsOnly {
		// abort and type errors end the evaluation of everything: see whether
		// the map stands without its systems.
		doc, err = s.ask(ctx, r, forceNone)
		for i := range doc.Nodes {
			doc.Nodes[i].EvalFailed = doc.Nodes[i].Selected
		}
		if doc.Combined != nil {
			doc.Combined.EvalFailed = true
		}
	}
	if err != nil {
		return Map{}, s.explain(ctx, r, err)
	}
	if r.Combined {
		if err := doc.combine(r.Ref); err != nil {
			return Map{}, err
		}
	}
	m := Map{Ref: r.Ref, Ordered: doc.Ordered, Defaults: doc.Defaults.SSH, Elevate: doc.Defaults.Elevate, Combined: r.Combined}
	bad := &MapError{Ref: r.Ref}
	selected := false
	for _, n := range doc.Nodes {
		node := n.node()
		selected = selected || node.Selected
		if n.EvalFailed {
			var unusable *MapError
			node, err = s.alone(ctx, r, node)
			if errors.As(err, &unusable) && unusable.Cause == nil {
				bad.Problems = append(bad.Problems, unusable.Problems...)
			} else if err != nil {
				return Map{}, err
			}
		}
		m.Nodes = append(m.Nodes, node)
	}
	if !selected {
		bad.Problems = append(bad.Problems, settings.Problem{Source: r.Ref, Text: "the selection leaves no node"})
	}
	if len(bad.Problems) > 0 {
		return Map{}, bad
	}
	return m, nil
}

// alone evaluates one node so that Nix says what is wrong with it.
func (s *session) alone(ctx context.Context, r Request, node Node) (Node, error) {
	if !r.Combined {
		r.Include, r.Exclude = []Selector{exactly(node.Name)}, nil
	}
	doc, err := s.ask(ctx, r, forceStrict)
	if err == nil && r.Combined {
		err = doc.combine(r.Ref)
	}
	var failed *child.Error
	if errors.As(err, &failed) && failed.Cause == nil {
		node.EvalError = words(failed)
		return node, nil
	}
	if err != nil {
		return node, err
	}
	for _, n := range doc.Nodes {
		if n.Name == node.Name {
			return n.node(), nil
		}
	}
	return node, &MapError{Ref: r.Ref, Cause: fmt.Errorf("the node %s was gone when evaluated again", node.Name)}
}

// maxArgument is what Linux takes for one argument, without its final NUL
// (MAX_ARG_STRLEN, execve(2)).
const maxArgument = 128<<10 - 1

// ask runs Nix once and returns what it answered, checked.
// The error is a [*MapError]; its cause is a [*child.Error] when Nix failed.
func (s *session) ask(ctx context.Context, r Request, toplevels string) (document, error) {
	text := expression(toplevels, r)
	if len(text) > maxArgument {
		return document{}, &MapError{Ref: r.Ref, Cause: fmt.Errorf(
			"the selection of %d names and patterns is too long for Nix's command line; select with a glob or a tag", len(r.Include)+len(r.Exclude))}
	}
	if doc, ok := s.take(ctx, r, text); ok {
		return doc, nil
	}
	s.evaluations++
	args := slices.Concat([]string{"eval", "--json"}, features, r.flags(), []string{"--apply", text, r.Ref}, r.Args)
	result, err := s.Runner.Run(ctx, child.Command{Name: "nix", Args: args, Stderr: r.Stderr, Subject: "nix eval"})
	if err != nil {
		var failed *child.Error
		if errors.As(err, &failed) && !r.ShowTrace {
			failed.Stderr = withoutOwnFrames(failed.Stderr)
		}
		if failed != nil && failed.Cause == nil && r.Stderr != nil {
			// What Nix said before its error has been told.
			failed.Stderr = fromError(failed.Stderr)
		}
		// What there is on standard output may be half of the answer.
		return document{}, &MapError{Ref: r.Ref, Cause: err}
	}
	doc, err := decode(r.Ref, result.Stdout)
	if err == nil && s.kept != nil {
		s.kept.offer(text, result)
	}
	return doc, err
}

// take returns the kept answer, or makes ready for the evaluation of what isn't kept.
func (s *session) take(ctx context.Context, r Request, text string) (document, bool) {
	if s.kept == nil {
		return document{}, false
	}
	doc, ok, err := s.kept.take(ctx, r.Ref, text, r.Stderr)
	if err != nil {
		s.how.Warnings = append(s.how.Warnings, "a kept evaluation is not used: "+err.Error())
	}
	if ok {
		return doc, true
	}
	if err := s.kept.evaluating(ctx); err != nil {
		s.distrust(err)
		s.close()
		s.kept = nil
	}
	return document{}, false
}

func (r Request) flags() []string {
	var args []string
	if r.Impure {
		args = append(args, "--impure")
	}
	if r.ShowTrace {
		args = append(args, "--show-trace")
	}
	for _, o := range r.Options {
		args = append(args, "--option", o[0], o[1])
	}
	return args
}

// document is the contract; its shape is in nix/schema.json.
type document struct {
	Ordered  bool
	Defaults struct {
		SSH     settings.SSH
		Elevate string
	}
	Nodes []documentNode
	// Combined is nil where the map has none.
	Combined *documentSystem
	Problems []struct{ Path, Text string }
	// Unmatched are the selectors that match no node.
	Unmatched []string
}

type documentNode struct {
	Name        string
	Host        string
	Tags        []string
	SSH         settings.SSH
	Elevate     string
	Expect      Expect
	IgnoreUnits []string
	Selected    bool
	documentSystem
}

type documentSystem struct {
	Toplevel   string
	DrvPath    string
	System     string
	EvalFailed bool
}

// combine gives the first node the combined system, and leaves out the others.
func (d *document) combine(ref string) error {
	if d.Combined == nil {
		return &MapError{Ref: ref, Problems: []settings.Problem{{Source: ref, Text: "the map has no `combined`, the one system of all nodes; add it beside `nodes`: a derivation, a NixOS configuration, or a store path"}}}
	}
	for i := range d.Nodes {
		d.Nodes[i].Selected, d.Nodes[i].documentSystem = i == 0, documentSystem{}
	}
	d.Nodes[0].documentSystem = *d.Combined
	return nil
}

func (n documentNode) node() Node {
	return Node{
		Name: n.Name, Host: n.Host, Tags: n.Tags, SSH: n.SSH, Selected: n.Selected,
		Elevate: n.Elevate, Expect: n.Expect, IgnoreUnits: n.IgnoreUnits,
		Toplevel: n.Toplevel, DrvPath: n.DrvPath, System: n.System,
	}
}

// decode checks the answer of Nix and reads it. All that is wrong with the
// map is in one error.
func decode(ref string, answer []byte) (document, error) {
	found, err := schema.Check(schema.Contract, answer)
	if err != nil {
		return document{}, &MapError{Ref: ref, Cause: fmt.Errorf("the answer of nix eval: %w", err)}
	}
	var names struct {
		Nodes []struct{ Name string }
	}
	// A wrong shape elsewhere is among the problems found already.
	_ = json.Unmarshal(answer, &names)
	var list []string
	for i := range found {
		found[i].Path = namedPath(found[i].Path, func(i int) string {
			if i < len(names.Nodes) {
				return names.Nodes[i].Name
			}
			return ""
		})
	}
	for _, n := range names.Nodes {
		list = append(list, n.Name)
	}
	problems := settings.Problems(ref, found)
	var doc document
	// Where a shape is wrong this reads the rest all the same.
	if err := json.Unmarshal(answer, &doc); err != nil && len(found) == 0 {
		return document{}, &MapError{Ref: ref, Cause: fmt.Errorf("the answer of nix eval: %w", err)}
	}
	for _, p := range doc.Problems {
		problems = append(problems, settings.Problem{Source: ref, Path: p.Path, Text: p.Text})
	}
	for i, selector := range doc.Unmatched {
		// A hint compares with every name, and nobody reads more.
		problems = append(problems, settings.Problem{Source: ref, Text: unmatched(selector, i < 20, list, doc.Nodes)})
	}
	if len(problems) > 0 {
		return document{}, &MapError{Ref: ref, Problems: problems}
	}
	return doc, nil
}

// namedPath puts the node's name in the place of its index.
func namedPath(path []string, name func(int) string) []string {
	if len(path) < 2 || path[0] != "nodes" {
		return path
	}
	var i int
	if _, err := fmt.Sscanf(path[1], "[%d]", &i); err != nil || name(i) == "" {
		return path
	}
	named := append([]string{}, path...)
	named[1] = name(i)
	return named
}

// firstLine is the first line of an error, for a remark.
func firstLine(err error) string {
	text := err.Error()
	var failed *child.Error
	if errors.As(err, &failed) && failed.Cause == nil && failed.Stderr != "" {
		text = failed.Subject + ": " + fromError(failed.Stderr)
	}
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// explain adds to "no node map here" which attribute Nix took: for .#nodes it
// looks at packages.SYSTEM.nodes and legacyPackages.SYSTEM.nodes first.
func (e Evaluator) explain(ctx context.Context, r Request, err error) error {
	var bad *MapError
	if !errors.As(err, &bad) || len(bad.Problems) == 0 || bad.Problems[0].Path != "" {
		return err
	}
	flake, attribute, found := strings.Cut(r.Ref, "#")
	if !found || attribute == "" || strings.HasPrefix(attribute, "packages.") {
		return err
	}
	result, failed := e.Runner.Run(ctx, child.Command{
		Name: "nix", Subject: "nix eval",
		Args: append(append([]string{"eval", "--raw", "--impure"}, features...), "--expr", "builtins.currentSystem"),
	})
	if failed != nil {
		return err
	}
	for _, prefix := range []string{"packages.", "legacyPackages."} {
		taken := prefix + strings.TrimSpace(string(result.Stdout)) + "." + attribute
		args := append(append([]string{"eval", "--json"}, features...), r.flags()...)
		args = append(append(args, "--apply", "_: true", flake+"#"+taken), r.Args...)
		if _, failed := e.Runner.Run(ctx, child.Command{Name: "nix", Args: args, Subject: "nix eval"}); failed == nil {
			bad.Problems[0].Text = fmt.Sprintf("Nix took %s: %s", taken, bad.Problems[0].Text)
			return bad
		}
	}
	return err
}
