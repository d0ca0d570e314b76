package report

import (
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var accept = flag.Bool("accept-contract", false, "write testdata/contract.txt anew, with the fields that were added")

// The JSON form of the records is a contract, see docs/reference/records.md: each field
// stays, by its name and its type, for as long as [Protocol] is 1. New ones are added to
// the list, and stay from then on.
func TestContract(t *testing.T) {
	const file = "testdata/contract.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	promised := strings.Split(strings.TrimSpace(string(text)), "\n")
	fields := jsonFields("", reflect.TypeFor[Record]())
	for _, p := range promised {
		if !slices.Contains(fields, p) {
			t.Errorf("%q is gone or has another type, which breaks what front-ends read", p)
		}
	}
	var added []string
	for _, f := range fields {
		if !slices.Contains(promised, f) {
			added = append(added, f)
		}
	}
	switch {
	case len(added) == 0 || t.Failed():
	case *accept:
		if err := os.WriteFile(file, []byte(strings.Join(fields, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("new fields, which will have to stay: go test ./internal/report -accept-contract, and make docs\n%s", strings.Join(added, "\n"))
	}
}

// jsonFields are the fields of a type as JSON has them, each with its path and type and
// a question mark where it may be left out.
func jsonFields(path string, of reflect.Type) []string {
	var all []string
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind, suffix := f.Type, ""
		for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice && kind.Elem().Kind() != reflect.Uint8 {
			if kind.Kind() == reflect.Slice {
				suffix = "[]"
			}
			kind = kind.Elem()
		}
		if f.Anonymous {
			all = append(all, jsonFields(path, kind)...)
			continue
		}
		at := strings.TrimPrefix(path+"."+name+suffix, ".")
		if options == "omitempty" {
			at += "?"
		}
		if kind.Kind() == reflect.Struct && kind.PkgPath() != "time" {
			all = append(all, jsonFields(at, kind)...)
			continue
		}
		word := kind.Kind().String()
		switch {
		case kind.PkgPath() == "time":
			word = "time"
		case strings.HasPrefix(word, "int"):
			word = "integer"
		}
		all = append(all, at+" "+word)
	}
	slices.Sort(all)
	return all
}
