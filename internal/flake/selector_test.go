package flake

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSelectors(t *testing.T) {
	got, err := ParseSelectors("web-*, db.1,@eu?,web* & @eu&db.1")
	if err != nil {
		t.Fatal(err)
	}
	want := []Selector{
		{"web-*", []term{{"web-*", byName, "web-.*"}}},
		{"db.1", []term{{"db.1", byExactName, "db.1"}}},
		{"@eu?", []term{{"@eu?", byTag, "eu."}}},
		{"web* & @eu&db.1", []term{{"web*", byName, "web.*"}, {"@eu", byTag, "eu"}, {"db.1", byExactName, "db.1"}}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Selector{}, term{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for list, want := range map[string]string{
		"":      "selects nothing",
		"@":     `"@" selects nothing`,
		"a,,b":  "selects nothing",
		"a&":    `"a&": "" selects nothing`,
		"&":     `"&": "" selects nothing`,
		"@a&&b": `"@a&&b": "" selects nothing`,
		"a b":   `the character ' '`,
		`a"`:    "the character",
		"${x}":  "the character '$'",
		"[a-z]": "the character '['",
		"a|b":   "the character '|'",
		"@a@b":  "the character '@'",
		"!web":  `"!web": there is no ` + "`!`" + `; leave nodes out with --exclude`,
		"@a&!b": `"@a&!b": "!b": there is no`,
	} {
		got, err := ParseSelectors(list)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %q", list, got, err, want)
		}
	}
}

// Whatever is read is told to Nix as harmless text, and means the same when read again.
func FuzzParseSelectors(f *testing.F) {
	for _, list := range []string{"web-*, db.1,@eu?", "@a&@b", "web*&@eu", "a&&b", "-", "!a", "@", "a\n", "é", `"`} {
		f.Add(list)
	}
	harmless := regexp.MustCompile(`^[A-Za-z0-9_.*\[\]-]+$`)
	f.Fuzz(func(t *testing.T, list string) {
		selectors, err := ParseSelectors(list)
		if err != nil {
			if err.Error() == "" {
				t.Errorf("%q: an error without words", list)
			}
			return
		}
		var texts []string
		for _, s := range selectors {
			texts = append(texts, s.String())
			if len(s.terms) == 0 {
				t.Errorf("%q: %q would select everything", list, s)
			}
			for _, term := range s.terms {
				if !harmless.MatchString(term.value) || strings.ContainsAny(term.text, ",&\n") {
					t.Errorf("%q has the term %+v", list, term)
				}
				if _, err := regexp.CompilePOSIX(term.value); term.kind != byExactName && err != nil {
					t.Errorf("%q: %q is no pattern: %v", list, term.value, err)
				}
			}
		}
		again, err := ParseSelectors(strings.Join(texts, ","))
		if diff := cmp.Diff(selectors, again, cmp.AllowUnexported(Selector{}, term{})); err != nil || diff != "" {
			t.Errorf("%q read again: %v\n%s", list, err, diff)
		}
	})
}

// Thousands of names fit into one argument.
func TestManyNamesAreShort(t *testing.T) {
	var names []Selector
	for range 5000 {
		names = append(names, exactly("a-name-of-17-char"))
	}
	if text := expression(forceCaught, Request{Include: names}); len(text) > maxArgument {
		t.Errorf("5000 names make %d bytes", len(text))
	}
}
