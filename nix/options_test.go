package nix_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/internal/schema"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/nix"
	"github.com/dlclark/regexp2"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// optionTable is testdata/options.json.
type optionTable struct {
	Items []struct {
		Item     string
		Admitted bool
		Why      string
		// Error is a part of what the program says about a refused item.
		Error string
	}
	Lists []struct {
		Items    []string
		Admitted bool
		Why      string
	}
}

func readOptions(t *testing.T) optionTable {
	t.Helper()
	text, err := os.ReadFile("testdata/options.json")
	if err != nil {
		t.Fatal(err)
	}
	var table optionTable
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, row := range table.Items {
		if seen[row.Item] || row.Why == "" || !row.Admitted && row.Error == "" {
			t.Errorf("the row of %.80q is there twice, or lacks its reason", row.Item)
		}
		seen[row.Item] = true
	}
	if len(table.Items) < 60 {
		t.Errorf("the table has only %d items", len(table.Items))
	}
	return table
}

func TestOptionsInGo(t *testing.T) {
	for _, row := range readOptions(t).Items {
		err := settings.CheckOption(row.Item)
		if (err == nil) != row.Admitted {
			t.Errorf("%.80q (%s): got %v", row.Item, row.Why, err)
		}
		if err != nil && !strings.Contains(err.Error(), row.Error) {
			t.Errorf("%.80q: got %v, want %q in it", row.Item, err, row.Error)
		}
	}
}

// ecma reads patterns as ECMA-262 does, which is what a front-end's validator does.
type ecma struct{ *regexp2.Regexp }

func (e ecma) MatchString(s string) bool {
	matched, err := e.Regexp.MatchString(s)
	return err == nil && matched
}

// A schema validator refuses what the evaluation refuses, whether its patterns
// are read by Go or by JavaScript (FR-017).
func TestOptionsInTheSchema(t *testing.T) {
	for name, engine := range map[string]jsonschema.RegexpEngine{
		"Go": nil,
		"ECMA-262": func(pattern string) (jsonschema.Regexp, error) {
			compiled, err := regexp2.Compile(pattern, regexp2.ECMAScript|regexp2.Unicode)
			return ecma{compiled}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(nix.Schema)))
			if err != nil {
				t.Fatal(err)
			}
			c := jsonschema.NewCompiler()
			if engine != nil {
				c.UseRegexpEngine(engine)
			}
			if err := c.AddResource("schema.json", document); err != nil {
				t.Fatal(err)
			}
			options, err := c.Compile("schema.json#/$defs/options")
			if err != nil {
				t.Fatal(err)
			}
			table := readOptions(t)
			for _, row := range table.Items {
				if err := options.Validate([]any{row.Item}); (err == nil) != row.Admitted {
					t.Errorf("%.80q (%s): got %v", row.Item, row.Why, err)
				}
			}
			for _, row := range table.Lists {
				list := []any{}
				for _, item := range row.Items {
					list = append(list, item)
				}
				if err := options.Validate(list); (err == nil) != row.Admitted {
					t.Errorf("%q (%s): got %v", row.Items, row.Why, err)
				}
			}
		})
	}
}

func TestOptionsInNix(t *testing.T) {
	store := nixtest.New(t)
	var items []string
	var want []bool
	for _, row := range readOptions(t).Items {
		// No string of Nix holds it, so none can be written.
		if strings.Contains(row.Item, "\x00") {
			continue
		}
		items, want = append(items, row.Item), append(want, row.Admitted)
	}
	list, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "items.json")
	if err := os.WriteFile(file, list, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, expression := range map[string]string{
		"the schema's patterns": `item: let o = schema."$defs".option; in builtins.match o.pattern item != null && builtins.match (o.not.pattern + ".*") item == null`,
		"the option type":       `(lib.types { lib = standIn; }).option.check`,
		"mkNodes":               `item: (builtins.tryEval (builtins.deepSeq (lib.mkNodes { nodes.web = { toplevel = 1; ssh.options = [ item ]; }; }).nodes.web.ssh true)).success`,
		"mkNodes' defaults":     `item: (builtins.tryEval (builtins.deepSeq (lib.mkNodes { nodes = { }; defaults.ssh.options = [ item ]; }).defaults true)).success`,
	} {
		t.Run(name, func(t *testing.T) {
			out, err := eval(t, store, fmt.Sprintf(`builtins.map (%s) (builtins.fromJSON (builtins.readFile %s))`, expression, file))
			if err != nil {
				t.Fatal(err)
			}
			var got []bool
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			for i := range items {
				if got[i] != want[i] {
					t.Errorf("%.80q: got %v", items[i], got[i])
				}
			}
		})
	}
}

// The pattern that refuses keywords is the table of reasons, in any case.
func TestRefusedKeywordsHaveReasons(t *testing.T) {
	var document struct {
		Defs struct {
			Option struct {
				Not     struct{ Pattern string }
				Refused map[string]string `json:"x-refused"`
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(nix.Schema, &document); err != nil {
		t.Fatal(err)
	}
	option := document.Defs.Option
	alternatives := strings.Split(strings.TrimSuffix(strings.TrimPrefix(option.Not.Pattern, "^("), ")="), "|")
	found := map[string]bool{}
	for _, alternative := range alternatives {
		var keyword strings.Builder
		for _, class := range strings.Split(strings.Trim(alternative, "[]"), "][") {
			if len(class) != 2 || strings.ToLower(class[:1]) != class[1:] || class[0] == class[1] {
				t.Errorf("%s: wanted each letter as [Xx]", alternative)
			}
			keyword.WriteString(class[len(class)-1:])
		}
		found[keyword.String()] = true
	}
	want := map[string]bool{}
	for keyword, reason := range option.Refused {
		want[keyword] = true
		if reason == "" {
			t.Errorf("%s has no reason", keyword)
		}
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("-with a reason +refused by the pattern\n%s", diff)
	}
	if diff := cmp.Diff(option.Refused, schema.RefusedKeywords()); diff != "" {
		t.Errorf("-schema.json +internal/schema\n%s", diff)
	}
}
