package flake

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Selector picks nodes by name or tag.
type Selector struct {
	// text is what the person wrote.
	text string
	// pattern is a POSIX extended regular expression of letters, digits,
	// `_`, `-`, bracket expressions and `.*`.
	pattern string
	tag     bool
	// exact is a whole name, in place of a pattern.
	exact string
}

// String is the selector as it was written.
func (s Selector) String() string { return s.text }

// Matches reports whether a node is selected, as the expression does it in Nix.
func (s Selector) Matches(name string, tags []string) bool {
	if s.exact != "" {
		return s.exact == name
	}
	pattern := regexp.MustCompile("^(" + s.pattern + ")$") // of letters, brackets and dots alone
	if s.tag {
		return slices.ContainsFunc(tags, pattern.MatchString)
	}
	return pattern.MatchString(name)
}

// ParseSelectors reads NAME, GLOB and @TAG, separated by commas. A glob has
// * for any characters and ? for one. A tag may be a glob too.
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
	glob, tag := strings.CutPrefix(item, "@")
	if glob == "" {
		return Selector{}, fmt.Errorf("%q selects nothing; wanted a node name, a glob such as web-*, or @TAG", item)
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
		default:
			return Selector{}, fmt.Errorf("%q: no node name or tag has the character %q", item, r)
		}
	}
	if !tag && !strings.ContainsAny(glob, "*?") {
		return exactly(glob), nil
	}
	return Selector{text: item, pattern: pattern.String(), tag: tag}, nil
}

// exactly selects the one node of that name.
func exactly(name string) Selector {
	return Selector{text: name, exact: name}
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r)
}
