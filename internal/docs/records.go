package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// recordFolder is where the types of the records are.
const recordFolder = "internal/report"

// record is a struct of the record stream.
type record struct {
	name, doc string
	fields    []recordField
}

type recordField struct {
	goName, name, kind, doc string
	optional                bool
	inside                  string // the struct that it has or is a list of; may be empty
}

// records is the page of what --json prints, made from the types' own comments.
func records(project fs.FS) (string, error) {
	structs, err := recordStructs(project)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(notice + `# Records

With ` + "`--json`" + ` standard output has one JSON object a line, each with exactly one member, whose name
says what kind of record it is:

` + "```json" + `
{"result":{"time":"2026-01-02T15:04:05Z","node":"web","verdict":"switched","class":"good", …}}
` + "```" + `

**This is stable.** As long as ` + "`run.protocol`" + ` is 1 no field is renamed or removed or gets another
type or meaning. Kinds of records, fields and [verdicts](verdicts.md) may be added: a reader leaves
alone what it doesn't know, and goes by ` + "`result.class`" + ` where a verdict is new to it. Records come in
order of time; those of several nodes may be mixed. Errors that stop the program before it has begun
(exit code 2) are on standard error only.

A time is RFC 3339, ` + "`seconds`" + ` are a number with fractions, sizes are bytes. *Optional* fields are left out
when empty. To read the results of a run:

` + "```sh" + `
deploy-ssh .#nodes --json --no-progress | jq -r '.result // empty | [.node, .verdict, .reason] | @tsv'
` + "```" + `
`)
	seen := map[string]bool{}
	var section func(kind string, r record) error
	section = func(kind string, r record) error {
		if seen[r.name] {
			return nil
		}
		seen[r.name] = true
		fields, err := r.flat(structs)
		if err != nil {
			return err
		}
		var rows [][]string
		for _, f := range fields {
			meaning := sentence(jsonWords(plain(f.doc), fields))
			if f.optional {
				meaning = strings.TrimSpace("*Optional.* " + meaning)
			}
			rows = append(rows, []string{code(f.name), f.kind, meaning})
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", kind, sentence(jsonWords(plain(r.doc), fields)), table([]string{"field", "type", ""}, rows))
		for _, f := range fields {
			if f.inside != "" {
				if err := section(f.inside, structs[f.inside]); err != nil {
					return err
				}
			}
		}
		return nil
	}
	top, err := structs["Record"].flat(structs)
	if err != nil {
		return "", err
	}
	for _, f := range top {
		if err := section(f.name, structs[f.inside]); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// recordStructs reads the structs of the package from its source.
func recordStructs(project fs.FS) (map[string]record, error) {
	paths, err := fs.Glob(project, recordFolder+"/*.go")
	if err != nil {
		return nil, err
	}
	structs, words := map[string]record{}, map[string]bool{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(project, path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			types, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range types.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				switch t := named.Type.(type) {
				case *ast.StructType:
					structs[named.Name.Name] = readStruct(named.Name.Name, types.Doc.Text(), t)
				case *ast.Ident:
					words[named.Name.Name] = t.Name == "string"
				}
			}
		}
	}
	if len(structs["Record"].fields) == 0 {
		return nil, fmt.Errorf("%s has no type Record", recordFolder)
	}
	for _, r := range structs {
		for i, f := range r.fields {
			if words[f.inside] {
				r.fields[i].kind, r.fields[i].inside = strings.Replace(f.kind, link(f.inside), "string", 1), ""
			}
		}
	}
	return structs, nil
}

// link leads to the section of a struct.
func link(name string) string { return "[" + name + "](#" + strings.ToLower(name) + ")" }

func readStruct(name, doc string, s *ast.StructType) record {
	r := record{name: name, doc: withoutName(doc, name)}
	for _, f := range s.Fields.List {
		field := recordField{doc: strings.Join(strings.Fields(f.Doc.Text()), " ")}
		field.kind, field.inside = kindOfType(f.Type)
		if len(f.Names) == 0 { // embedded: its fields are the struct's own
			r.fields = append(r.fields, field)
			continue
		}
		if f.Tag == nil {
			continue
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		var options string
		field.goName = f.Names[0].Name
		field.name, options, _ = strings.Cut(tag, ",")
		field.optional = options == "omitempty"
		field.doc = withoutName(field.doc, field.goName)
		r.fields = append(r.fields, field)
	}
	return r
}

// flat is the fields with those of embedded structs.
func (r record) flat(structs map[string]record) ([]recordField, error) {
	var all []recordField
	for _, f := range r.fields {
		if f.inside != "" && len(structs[f.inside].fields) == 0 {
			return nil, fmt.Errorf("%s: %s.%s has a type that is no record of this package", recordFolder, r.name, f.goName)
		}
		if f.goName != "" {
			all = append(all, f)
			continue
		}
		inner, err := structs[f.inside].flat(structs)
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
	return all, nil
}

// kindOfType names a type as a reader of JSON would, and the struct in it.
func kindOfType(e ast.Expr) (kind, inside string) {
	switch t := e.(type) {
	case *ast.StarExpr:
		kind, inside = kindOfType(t.X)
		return kind, inside
	case *ast.ArrayType:
		kind, inside = kindOfType(t.Elt)
		if kind == "byte" {
			return "string (base64)", ""
		}
		return "list of " + kind, inside
	case *ast.MapType:
		kind, inside = kindOfType(t.Value)
		return "object of " + kind, inside
	case *ast.SelectorExpr:
		switch of, _ := t.X.(*ast.Ident); {
		case t.Sel.Name == "Time":
			return "time", ""
		case of != nil && of.Name == "verdict": // its words
			return "string", ""
		}
		return "object", ""
	case *ast.Ident:
		switch t.Name {
		case "int", "int64", "float64":
			return "number", ""
		case "bool":
			return "boolean", ""
		case "string":
			return "string", ""
		case "byte":
			return "byte", ""
		}
		return link(t.Name), t.Name
	}
	return "any", ""
}

// withoutName takes off the name with which Go's comments begin, and the full stop.
func withoutName(doc, name string) string {
	doc = strings.TrimSuffix(strings.Join(strings.Fields(doc), " "), ".")
	for _, verb := range []string{" is ", " are "} {
		if rest, ok := strings.CutPrefix(doc, name+verb); ok {
			return rest
		}
	}
	if rest, ok := strings.CutPrefix(doc, name+" "); ok && !strings.HasPrefix(rest, "and ") {
		return rest
	}
	return doc
}

var word = regexp.MustCompile(`\b([A-Z][A-Za-z]+|nil)\b`)

// jsonWords puts the names of fields as JSON has them in the place of Go's.
func jsonWords(text string, fields []recordField) string {
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if w == "nil" {
			return "absent"
		}
		if i := slices.IndexFunc(fields, func(f recordField) bool { return f.goName == w }); i >= 0 {
			return code(fields[i].name)
		}
		return w
	})
}
