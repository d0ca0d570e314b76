package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/nearest"
	"github.com/deploy-ssh/deploy-ssh/internal/peers"
)

// unknownField says what a field is that nobody knows in a place where the
// known ones are possible, and what was probably meant.
func unknownField(name string, known []string) string {
	shown := " " + short(name)
	if IsPrivateKey(name) {
		shown = ""
	}
	return fmt.Sprintf("unknown field%s%s (known: %s)", shown, meant(name, known), strings.Join(known, ", "))
}

// synonyms are names that ssh_config(5) and people have for our fields, in lower
// case. Those of other tools are in [peers].
var synonyms = map[string]string{
	"address": "host", "username": "ssh.user", "login": "ssh.user", "user": "ssh.user",
	"identityfile": "ssh.key", "sshkey": "ssh.key", "keyfile": "ssh.key", "privatekey": "ssh.key", "key": "ssh.key",
	"opts": "ssh.options", "options": "ssh.options", "port": portOption, "sshport": portOption,
	"hostpublickey": "ssh.hostKey", "publickey": "ssh.hostKey", "publichostkey": "ssh.hostKey", "hostkey": "ssh.hostKey",
	"system": "toplevel", "configuration": "toplevel", "config": "toplevel",
}

const portOption = `ssh.options = [ "Port=…" ]`

// meant is the end of a sentence: `; write …`, `; did you mean …`, or nothing.
func meant(name string, known []string) string {
	if name == "ssh" && slices.Contains(known, "user") {
		return "; its fields stand here without it"
	}
	row, theirs := peers.Find(peers.Field, name)
	said := "; "
	if theirs {
		said = ", as in " + row.Names() + "; "
	} else {
		row.Ours = synonyms[strings.ToLower(name)]
	}
	if row = placed(row, known); row.Ours != "" || row.Note != "" {
		return said + row.Remedy()
	}
	if hint := nearest.Hint(name, known); hint != "" {
		return hint
	}
	if slices.Contains(known, "options") && name != "" && name[0] >= 'A' && name[0] <= 'Z' && Matches("option", name+"=x") {
		return fmt.Sprintf(`; an option of ssh_config is an item of options: options = [ "%s=…" ]`, name)
	}
	return ""
}

// placed is a row with ours as it is written in a place that has the known fields.
// Nothing is left of a field that can't be written there, nor of its note.
func placed(row peers.Row, known []string) peers.Row {
	has := func(name string) bool { return slices.Contains(known, name) }
	field, _, _ := strings.Cut(row.Ours, " ")
	top, inSSH := strings.CutPrefix(field, "ssh.")
	switch {
	case row.Ours == "" || strings.HasPrefix(row.Ours, "-"):
	case inSSH && has("ssh"), has(field):
	case inSSH && has(top): // in ssh itself, or in the environment's map
		row.Ours = strings.TrimPrefix(row.Ours, "ssh.")
	case has("order") && (inSSH || field == "elevate"): // beside the nodes
		row.Ours = "defaults." + row.Ours
	default:
		return peers.Row{}
	}
	return row
}
