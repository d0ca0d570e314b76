package release

import (
	"fmt"
	"strings"
)

// Notes returns what the changelog says of a version, which may begin with a v: the
// text below its heading, as of a release. The changelog has the form of Keep a
// Changelog: headings `## 1.2.3`, `## [1.2.3] - 2026-01-31` or `## Unreleased`.
//
// A version without an entry, or with an empty one, is an error: a release tells
// what is new.
func Notes(changelog, version string) (string, error) {
	version = strings.TrimPrefix(version, "v")
	var notes strings.Builder
	var known []string
	inside, fenced := false, false
	for line := range strings.Lines(changelog) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if heading, ok := strings.CutPrefix(line, "## "); ok && !fenced {
			found := headed(heading)
			known = append(known, found)
			inside = strings.EqualFold(found, version)
			continue
		}
		if inside {
			notes.WriteString(line)
		}
	}
	text := strings.TrimSpace(notes.String())
	switch {
	case text != "":
		return text + "\n", nil
	case inside || containsFold(known, version):
		return "", fmt.Errorf("the changelog's entry of %s is empty", version)
	}
	return "", fmt.Errorf("the changelog has no entry of %s, only of %s", version, strings.Join(known, ", "))
}

// headed is the version in a heading.
func headed(heading string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(heading), " ")
	return strings.TrimPrefix(strings.Trim(word, "[]"), "v")
}

func containsFold(list []string, word string) bool {
	for _, other := range list {
		if strings.EqualFold(other, word) {
			return true
		}
	}
	return false
}
