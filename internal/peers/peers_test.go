package peers

import (
	"strings"
	"testing"
)

func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Table() {
		key := string(r.Kind) + " " + strings.ToLower(r.Theirs)
		if seen[key] {
			t.Errorf("%s stands twice: only the first would be found", key)
		}
		seen[key] = true
		if r.Ours == "" && r.Note == "" {
			t.Errorf("%s: neither what to write nor why nothing", key)
		}
		if len(r.Tools) == 0 {
			t.Errorf("%s: whose is it?", key)
		}
		if strings.ContainsAny(r.Note+r.Ours, "|\n") {
			t.Errorf("%s: the texts are cells of a table", key)
		}
	}
}

func TestFind(t *testing.T) {
	for _, tt := range []struct {
		kind         Kind
		name, remedy string
	}{
		{Field, "targetHost", "write host"},
		{Field, "TARGETHOST", "write host"},
		{Field, "targetPort", `write ssh.options = [ "Port=…" ]; the port is an option`},
		{Flag, "build-host", builders},
		{Flag, "targethost", ""},
		{Field, "tags", ""},
		{Verb, "switch", "write deploy-ssh apply .#nodes"},
	} {
		row, found := Find(tt.kind, tt.name)
		if found != (tt.remedy != "") || found && row.Remedy() != tt.remedy {
			t.Errorf("%s %s: found %v, %q, want %q", tt.kind, tt.name, found, row.Remedy(), tt.remedy)
		}
	}
	if row, _ := Find(Field, "targetHost"); row.Names() != "colmena, morph and wire" || row.Full() != "deployment.targetHost" {
		t.Errorf("got %q of %q", row.Full(), row.Names())
	}
}

func TestEveryToolHasRows(t *testing.T) {
	for _, tool := range []Tool{Colmena, DeployRS, Morph, Wire} {
		if len(Of(tool, Field)) < 5 || len(Of(tool, Flag)) < 5 {
			t.Errorf("%s: %d fields, %d flags", tool, len(Of(tool, Field)), len(Of(tool, Flag)))
		}
	}
	if len(Of(NixosRebuild, Flag, Verb)) < 15 {
		t.Error("nixos-rebuild has too few")
	}
}
