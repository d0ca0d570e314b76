package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every verb has a description and examples, and the examples are command lines.
func TestEveryVerbIsDescribed(t *testing.T) {
	root := Root()
	for _, cmd := range append(root.Commands(), root) {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s: a first line and examples are wanted in its command or in descriptions", cmd.Name())
		}
		for line := range strings.Lines(cmd.Example) {
			text, _, _ := strings.Cut(strings.TrimSpace(line), "    ")
			words := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(text))
			if len(words) == 0 {
				continue
			}
			if words[0] != root.Name() {
				t.Errorf("%s: the example %q does not begin with the program's name", cmd.Name(), text)
				continue
			}
			if err := Parse(words[1:]); err != nil {
				t.Errorf("%s: the example %q: %v", cmd.Name(), text, err)
			}
		}
	}
	for name := range descriptions {
		if found, _, err := root.Find([]string{name}); name != root.Name() && (err != nil || found == root) {
			t.Errorf("%s is described, but is no verb", name)
		}
	}
}

func TestParse(t *testing.T) {
	got := map[string]bool{}
	want := map[string]bool{}
	for line, good := range map[string]bool{
		".#nodes": true, "apply .#nodes --option cores 4 -- --refresh": true, "status --help": true,
		"apply": false, ".#nodes --gaol boot": false, "aply .#nodes": false, ".#nodes --goal fly": false, "rollback .#nodes --to x": false,
	} {
		want[line] = good
		got[line] = Parse(strings.Fields(line)) == nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
