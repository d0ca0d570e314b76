package flake

import (
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/nix"
)

// The ways to treat toplevels; see the head of nix/contract.nix.
const (
	forceNone   = "none"
	forceCaught = "caught"
	forceStrict = "strict"
)

// expression is the text for --apply.
func expression(toplevels string, r Request) string {
	included := "null"
	if r.Include != nil {
		included = nixSelectors(r.Include)
	}
	var names strings.Builder
	for _, name := range r.Given {
		names.WriteString(nixString(name) + " ")
	}
	return fmt.Sprintf("(%s) {\n  toplevels = %s;\n  include = %s;\n  exclude = %s;\n  elsewhere = [ %s];\n  combined = %t;\n}",
		nix.Contract, nixString(toplevels), included, nixSelectors(r.Exclude), names.String(), r.Combined)
}

func nixSelectors(selectors []Selector) string {
	var b strings.Builder
	b.WriteString("[ ")
	for _, s := range selectors {
		if s.isName() {
			b.WriteString(nixString(s.terms[0].value) + " ")
			continue
		}
		fmt.Fprintf(&b, "{ text = %s; all = [ ", nixString(s.text))
		for _, t := range s.terms {
			fmt.Fprintf(&b, "{ text = %s; %s = %s; } ", nixString(t.text), t.kind, nixString(t.value))
		}
		b.WriteString("]; } ")
	}
	b.WriteString("]")
	return b.String()
}

// nixString writes a text as a Nix string literal. Nix strings hold no NUL
// byte; it is dropped.
func nixString(text string) string {
	return `"` + strings.NewReplacer(
		`\`, `\\`,
		`"`, `\"`,
		`$`, `\$`, // no interpolation
		"\n", `\n`,
		"\r", `\r`, // Nix reads a raw carriage return as a newline
		"\x00", "",
	).Replace(text) + `"`
}
