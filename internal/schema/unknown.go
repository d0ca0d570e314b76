package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/nearest"
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

// elsewhere are names that other tools and ssh_config(5) have for our fields.
var elsewhere = map[string]string{
	"hostname": "host", "targethost": "host", "address": "host",
	"sshuser": "user", "targetuser": "user", "username": "user", "login": "user",
	"identityfile": "key", "sshkey": "key", "keyfile": "key", "privatekey": "key",
	"sshopts": "options", "sshoptions": "options", "opts": "options",
	"hostpublickey": "hostKey", "publickey": "hostKey", "publichostkey": "hostKey",
	"system": "toplevel", "configuration": "toplevel", "config": "toplevel", "path": "toplevel",
}

// meant is the end of a sentence: `; write …`, `; did you mean …`, or nothing.
func meant(name string, known []string) string {
	lower := strings.ToLower(name)
	field := name
	if other, ok := elsewhere[lower]; ok && !slices.Contains(properties("entry", ""), name) {
		field = other
	}
	ssh := slices.Contains(known, "ssh")
	port := lower == "port" || lower == "targetport" || lower == "sshport"
	switch {
	case port && ssh:
		return `; the port is an option: ssh.options = [ "Port=…" ]`
	case port && slices.Contains(known, "options"):
		return `; the port is an option: options = [ "Port=…" ]`
	case ssh && !slices.Contains(known, field) && slices.Contains(properties("entry", ""), field):
		return "; write ssh." + field
	case name == "ssh" && slices.Contains(known, "user"):
		return "; its fields stand here without it"
	case field != name && slices.Contains(known, field):
		return fmt.Sprintf("; write %s", field)
	}
	if hint := nearest.Hint(name, known); hint != "" {
		return hint
	}
	if slices.Contains(known, "options") && name != "" && name[0] >= 'A' && name[0] <= 'Z' && Matches("option", name+"=x") {
		return fmt.Sprintf(`; an option of ssh_config is an item of options: options = [ "%s=…" ]`, name)
	}
	return ""
}
