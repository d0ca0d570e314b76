// Package schema checks JSON documents against the shapes in nix/schema.json
// and says in plain words what is wrong, and where.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/deploy-ssh/deploy-ssh/nix"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// The documents that can be checked: entries of $defs in nix/schema.json.
const (
	Contract    = "contract"
	Environment = "environment"
)

// Problem is one thing that is wrong in a document.
type Problem struct {
	// Path is where, from the root: object keys as they are, array indices as [3].
	Path []string
	// Rule names the entry of $defs that was broken, such as "option";
	// empty when it was none.
	Rule string
	// Value is what was found there; nil when it is not a scalar.
	Value any
	// Text says what is wrong and what is wanted.
	Text string
}

// Check parses a document and reports all that is wrong with it.
// An error means that it is no JSON at all; it gives the line and column.
func Check(document string, data []byte) ([]Problem, error) {
	if err := wellFormed(data); err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	err = compiled()[document].Validate(value)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil, err
	}
	problems := collect(invalid, value, nil)
	for i := range problems {
		problems[i].Path = marked(value, problems[i].Path)
	}
	sort.SliceStable(problems, func(i, j int) bool {
		return strings.Join(problems[i].Path, "\x00") < strings.Join(problems[j].Path, "\x00")
	})
	return problems, nil
}

// Index is an array index as a step of a path.
func Index(i int) string { return "[" + strconv.Itoa(i) + "]" }

// marked tells the indices of arrays in a path from keys of objects.
func marked(root any, path []string) []string {
	out := make([]string, len(path))
	for i, step := range path {
		out[i] = step
		switch v := root.(type) {
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(v) {
				root = nil
				continue
			}
			out[i], root = Index(n), v[n]
		case map[string]any:
			root = v[step]
		default:
			root = nil
		}
	}
	return out
}

// Location writes a path as people do: nodes.web.options[1].
func Location(path []string) string {
	var b strings.Builder
	for _, step := range path {
		if n, err := strconv.Atoi(strings.Trim(step, "[]")); err == nil && step == Index(n) {
			b.WriteString(step)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		switch {
		case plainKey(step):
			b.WriteString(step)
		case IsPrivateKey(step):
			b.WriteString("(a private key)")
		default:
			b.WriteString(short(step))
		}
	}
	return b.String()
}

func plainKey(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '$') {
			return false
		}
	}
	return s != ""
}

// Description is what the schema says about an entry of $defs.
func Description(rule string) string {
	def, _ := definitions()[rule].(map[string]any)
	text, _ := def["description"].(string)
	return text
}

// Pattern is the regular expression of an entry of $defs; "" when it has none.
func Pattern(rule string) string {
	def, _ := definitions()[rule].(map[string]any)
	text, _ := def["pattern"].(string)
	return text
}

// RefusedKeywords are the keywords of ssh_config, in lower case, that no option
// may set, each with the reason.
func RefusedKeywords() map[string]string { return refusedKeywords() }

var refusedKeywords = sync.OnceValue(func() map[string]string {
	reasons := map[string]string{}
	option, _ := definitions()["option"].(map[string]any)
	refused, _ := option["x-refused"].(map[string]any)
	for keyword, reason := range refused {
		reasons[keyword], _ = reason.(string)
	}
	return reasons
})

// Variable is what the schema says about an environment variable that the
// program reads; "" when it reads none of that name.
func Variable(name string) string {
	variables, _ := definitions()["variables"].(map[string]any)
	properties, _ := variables["properties"].(map[string]any)
	variable, _ := properties[name].(map[string]any)
	text, _ := variable["description"].(string)
	return text
}

// Matches tells whether a text has the pattern of an entry of $defs.
func Matches(rule, text string) bool {
	return patterns()[rule].MatchString(text)
}

var patterns = sync.OnceValue(func() map[string]*regexp.Regexp {
	all := map[string]*regexp.Regexp{}
	for name := range definitions() {
		if pattern := Pattern(name); pattern != "" {
			all[name] = regexp.MustCompile(pattern)
		}
	}
	return all
})

// Shown quotes a wrong value for the head of an error, as `"x": `. It is empty
// for what may be a private key: somebody may have pasted the key itself where
// the path of its file belongs, or another field's.
func Shown(rule string, value any) string {
	text, ok := value.(string)
	if !ok || rule == "key" || rule == "hostKey" || rule == "text" || IsPrivateKey(text) {
		return ""
	}
	return short(text) + ": "
}

// IsPrivateKey tells whether a text has the marks of a private key: the PEM
// header, PuTTY's, age's, or the beginning of OpenSSH's own format in base64.
func IsPrivateKey(text string) bool {
	for _, mark := range []string{"PRIVATE KEY", "PuTTY-User-Key-File", "AGE-SECRET-KEY", "b3BlbnNzaC1rZXktdjE"} {
		if strings.Contains(text, mark) {
			return true
		}
	}
	return false
}

// short quotes a text and cuts a long one.
func short(text string) string {
	const limit = 80
	if runes := []rune(text); len(runes) > limit {
		return strconv.Quote(string(runes[:limit])) + "…"
	}
	return strconv.Quote(text)
}

// wellFormed refuses what is no JSON, what follows it, and an object that has
// one key twice: the second would win in silence.
func wellFormed(data []byte) error {
	var any json.RawMessage
	if err := json.Unmarshal(data, &any); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return fmt.Errorf("%s: not JSON: %w", position(data, syntax.Offset), err)
		}
		return fmt.Errorf("not JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err := uniqueKeys(d, data, nil)
	if err == io.EOF {
		return nil
	}
	return err
}

func uniqueKeys(d *json.Decoder, data []byte, path []string) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		seen := map[string]bool{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return err
			}
			name := key.(string)
			here := append(path[:len(path):len(path)], name)
			if seen[name] {
				return fmt.Errorf("%s: %s is given twice", position(data, d.InputOffset()), Location(here))
			}
			seen[name] = true
			if err := uniqueKeys(d, data, here); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('['):
		for i := 0; d.More(); i++ {
			if err := uniqueKeys(d, data, append(path[:len(path):len(path)], Index(i))); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

// position turns a byte offset into a line and a column, both from 1.
func position(data []byte, offset int64) string {
	before := data[:min(offset, int64(len(data)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n') - 1
	return fmt.Sprintf("line %d, column %d", line, max(1, column))
}

var definitions = sync.OnceValue(func() map[string]any {
	var root struct {
		Defs map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(nix.Schema, &root); err != nil {
		panic(fmt.Sprintf("nix/schema.json: %v", err))
	}
	return root.Defs
})

var compiled = sync.OnceValue(func() map[string]*jsonschema.Schema {
	const url = "schema.json"
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(nix.Schema))
	if err != nil {
		panic(fmt.Sprintf("nix/schema.json: %v", err))
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(url, root); err != nil {
		panic(fmt.Sprintf("nix/schema.json: %v", err))
	}
	documents := map[string]*jsonschema.Schema{}
	for _, name := range []string{Contract, Environment} {
		documents[name] = c.MustCompile(url + "#/$defs/" + name)
	}
	return documents
})

// collect walks the tree of causes to its leaves, each of which is a problem.
func collect(e *jsonschema.ValidationError, root any, problems []Problem) []Problem {
	if names, ok := e.ErrorKind.(*kind.PropertyNames); ok {
		path := append(e.InstanceLocation[:len(e.InstanceLocation):len(e.InstanceLocation)], names.Property)
		return append(problems, Problem{
			Path: path, Rule: "name", Value: names.Property,
			Text: Shown("name", names.Property) + "wanted " + Description("name"),
		})
	}
	if len(e.Causes) > 0 {
		for _, cause := range e.Causes {
			problems = collect(cause, root, problems)
		}
		return problems
	}
	rule := ruleOf(e.SchemaURL)
	p := Problem{Path: e.InstanceLocation, Rule: rule}
	found := lookup(root, e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		if isNote(found) {
			p.Text = fmt.Sprintf("found %s; wanted an object with fields", describe(found))
			break
		}
		for _, name := range k.Properties {
			known := properties(rule, e.SchemaURL)
			problems = append(problems, Problem{
				Path: append(e.InstanceLocation[:len(e.InstanceLocation):len(e.InstanceLocation)], name),
				Rule: rule,
				Text: unknownField(name, known),
			})
		}
		return problems
	case *kind.Type:
		p.Text = fmt.Sprintf("found %s; wanted %s", describe(found), wantedTypes(k.Want, rule))
		if text, ok := found.(string); ok && text != "" && !IsPrivateKey(text) && slices.Contains(k.Want, "array") {
			p.Text += fmt.Sprintf(", as in [ %s ]", short(text))
		}
	case *kind.Pattern, *kind.Not:
		p.Value = found
		p.Text = Shown(rule, found) + "wanted " + Description(rule)
	case *kind.Required:
		p.Text = fmt.Sprintf("the field %s is missing", strings.Join(k.Missing, ", "))
	case *kind.Const:
		p.Text = fmt.Sprintf("found %s; wanted %v", describe(found), k.Want)
	default:
		p.Text = e.Error()
	}
	return append(problems, p)
}

// ruleOf takes "option" from schema.json#/$defs/option/pattern.
func ruleOf(url string) string {
	_, rest, found := strings.Cut(url, "#/$defs/")
	if !found {
		return ""
	}
	rule, _, _ := strings.Cut(rest, "/")
	return rule
}

// properties lists, sorted, the fields that a person may write in the object
// that the URL of a schema means.
func properties(rule, url string) []string {
	_, pointer, _ := strings.Cut(url, "#/$defs/"+rule)
	def := definitions()[rule]
	for _, step := range strings.Split(strings.Trim(pointer, "/"), "/") {
		if object, ok := def.(map[string]any); ok && step != "" {
			def = object[step]
		}
	}
	object, _ := def.(map[string]any)
	fields, _ := object["properties"].(map[string]any)
	var names []string
	for name, field := range fields {
		// What only the program writes is no suggestion.
		if f, ok := field.(map[string]any); ok && f["readOnly"] == true {
			continue
		}
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func lookup(value any, path []string) any {
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		}
	}
	return value
}

// describe names a value by its kind, without repeating a long one.
func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		if IsPrivateKey(v) {
			return "a private key"
		}
		return "the string " + short(v)
	case bool:
		return fmt.Sprintf("the boolean %v", v)
	case json.Number:
		return "the number " + v.String()
	case []any:
		return "a list"
	case map[string]any:
		if isNote(v) {
			return fmt.Sprint(v["$nix"])
		}
		return "an object"
	}
	return fmt.Sprintf("%v", value)
}

// isNote tells the object that contract.nix puts in the place of a value that
// JSON can't carry: {"$nix": "a function"}.
func isNote(value any) bool {
	object, _ := value.(map[string]any)
	_, noted := object["$nix"].(string)
	return noted && len(object) == 1
}

func wantedTypes(types []string, rule string) string {
	names := map[string]string{
		"array": "a list", "object": "an object with fields", "string": "a string",
		"boolean": "true or false", "integer": "a whole number", "number": "a number",
	}
	var words []string
	for _, t := range types {
		if t != "null" {
			words = append(words, names[t])
		}
	}
	text := strings.Join(words, " or ")
	if about := Description(rule); about != "" && text == "a string" {
		text += ": " + about
	}
	return text
}
