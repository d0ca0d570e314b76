package flake

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/nearest"
)

// Selector picks the nodes that match all of its terms.
type Selector struct {
	// text is what the person wrote.
	text  string
	terms []term
}

// term is one condition of a selector.
type term struct {
	text string
	kind termKind
	// value is a whole name, or a POSIX extended regular expression of
	// letters, digits, `_`, `-`, bracket expressions and `.*`.
	value string
}

// termKind is how the expression of nix/contract.nix calls a term's value.
type termKind string

const (
	byExactName termKind = "exact"
	byName      termKind = "name"
	byTag       termKind = "tag"
)

// String is the selector as it was written.
func (s Selector) String() string { return s.text }

// isName tells whether the selector is nothing but one node's name.
func (s Selector) isName() bool { return len(s.terms) == 1 && s.terms[0].kind == byExactName }

// Matches reports whether a node is selected, as the expression does it in Nix.
func (s Selector) Matches(name string, tags []string) bool {
	for _, t := range s.terms {
		if !t.matches(name, tags) {
			return false
		}
	}
	return true
}

func (t term) matches(name string, tags []string) bool {
	if t.kind == byExactName {
		return t.value == name
	}
	pattern := regexp.MustCompile("^(" + t.value + ")$") // of letters, brackets and dots alone
	if t.kind == byTag {
		return slices.ContainsFunc(tags, pattern.MatchString)
	}
	return pattern.MatchString(name)
}

// ParseSelectors reads selectors, separated by commas: each is NAME, GLOB or
// @TAG, or several of them with & in between, which selects what matches all.
// A glob has * for any characters and ? for one. A tag may be a glob too.
func ParseSelectors(list string) ([]Selector, error) {
	var selectors []Selector
	for _, item := range strings.Split(list, ",") {
		s, err := parseSelector(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		selectors = append(selectors, s)
	}
	return selectors, nil
}

func parseSelector(item string) (Selector, error) {
	s := Selector{text: item}
	for _, text := range strings.Split(item, "&") {
		t, err := parseTerm(strings.TrimSpace(text))
		if err != nil && text != item {
			err = fmt.Errorf("%q: %w", item, err)
		}
		if err != nil {
			return Selector{}, err
		}
		s.terms = append(s.terms, t)
	}
	return s, nil
}

var errNegation = errors.New("there is no `!`; leave nodes out with --exclude")

func parseTerm(text string) (term, error) {
	glob, tag := strings.CutPrefix(text, "@")
	if glob == "" {
		return term{}, fmt.Errorf("%q selects nothing; wanted a node name, a glob such as web-*, or @TAG", text)
	}
	var pattern strings.Builder
	for _, r := range glob {
		switch {
		case r == '*':
			pattern.WriteString(".*")
		case r == '?':
			pattern.WriteString(".")
		case r == '.':
			pattern.WriteString("[.]")
		case isNameRune(r):
			pattern.WriteRune(r)
		case r == '!':
			return term{}, fmt.Errorf("%q: %w", text, errNegation)
		default:
			return term{}, fmt.Errorf("%q: no node name or tag has the character %q", text, r)
		}
	}
	switch {
	case tag:
		return term{text: text, kind: byTag, value: pattern.String()}, nil
	case strings.ContainsAny(glob, "*?"):
		return term{text: text, kind: byName, value: pattern.String()}, nil
	}
	return term{text: text, kind: byExactName, value: glob}, nil
}

// exactly selects the one node of that name.
func exactly(name string) Selector {
	return Selector{text: name, terms: []term{{text: name, kind: byExactName, value: name}}}
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r)
}

// unmatched says of what was selected by and matches no node what is wrong with
// it, with the nearest name or tag if a hint is wanted.
func unmatched(selector string, hint bool, names []string, nodes []documentNode) string {
	if strings.Contains(selector, "&") {
		return fmt.Sprintf("%q selects no node: none is all of these", selector)
	}
	text := fmt.Sprintf("%q selects no node", selector)
	switch {
	case !hint:
		return text
	case strings.HasPrefix(selector, "@"):
		return text + nearest.Hint(selector, tags(nodes))
	}
	return text + nearest.Hint(selector, names)
}

// tags are all tags of the nodes as they are selected by, each once.
func tags(nodes []documentNode) []string {
	var all []string
	for _, n := range nodes {
		for _, tag := range n.Tags {
			if tag = "@" + tag; !slices.Contains(all, tag) {
				all = append(all, tag)
			}
		}
	}
	return all
}
