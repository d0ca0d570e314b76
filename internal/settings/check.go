package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/deploy-ssh/deploy-ssh/internal/nearest"
	"github.com/deploy-ssh/deploy-ssh/internal/schema"
)

// CheckOption says what is wrong with an item of an options list (FR-017).
// The form and the refused keywords are those of nix/schema.json.
func CheckOption(item string) error {
	shown := schema.Shown("option", item)
	keyword, value, found := strings.Cut(item, "=")
	wanted := schema.Description("option")
	switch {
	case strings.HasPrefix(item, "-"):
		return fmt.Errorf("%sis in command-line form; wanted %s%s", shown, wanted, bareForm(item))
	case found && keyword != "" && strings.Trim(value, " ") == "":
		return fmt.Errorf("%shas no value; wanted %s", shown, wanted)
	case !schema.Matches("option", item) || hasControl(item):
		return fmt.Errorf("%swanted %s%s", shown, wanted, bareForm(item))
	}
	if why, found := schema.RefusedKeywords()[strings.ToLower(keyword)]; found {
		return fmt.Errorf("%sthe keyword %s can't be set here: %s", shown, keyword, why)
	}
	return nil
}

// flags are those of ssh that people know, with their keyword in ssh_config.
var flags = map[string]string{
	"-b": "BindAddress", "-c": "Ciphers", "-i": "IdentityFile", "-J": "ProxyJump", "-l": "User", "-m": "MACs", "-p": "Port",
}

// bareForm guesses what a wrong item was to be, for an error's end.
func bareForm(item string) string {
	if strings.HasPrefix(item, "-F") {
		return "; a file of ssh_config is given with " + KeyConfig
	}
	text := strings.TrimPrefix(item, "-o")
	if len(item) > 2 && flags[item[:2]] != "" {
		text = flags[item[:2]] + "=" + strings.TrimLeft(item[2:], " =")
	}
	text = strings.Trim(text, " ")
	if end := strings.IndexAny(text, " ="); end > 0 {
		text = text[:end] + "=" + strings.TrimLeft(text[end:], " =")
	}
	if text == item || schema.IsPrivateKey(text) || !schema.Matches("option", text) || CheckOption(text) != nil {
		return ""
	}
	return fmt.Sprintf("; write %q", text)
}

// CheckHost says what is wrong with a host; empty is right.
func CheckHost(host string) error {
	bare := unbracket(host)
	shown := schema.Shown("host", host)
	if _, rest, found := strings.Cut(host, "://"); found {
		rest, _, _ = strings.Cut(rest, "/")
		return fmt.Errorf("%sis a URL; write the host alone%s, and a user and a port in their own places: user = \"…\", options = [ \"Port=…\" ]",
			shown, suggestion(rest[strings.LastIndex(rest, "@")+1:]))
	}
	if user, name, found := strings.Cut(host, "@"); found && CheckUser(user) == nil && user != "" {
		return fmt.Errorf("%shas a user in front; write the host alone%s, and the user in its own place: user = %q", shown, suggestion(name), user)
	}
	if name, port, found := cutPort(host); found {
		return fmt.Errorf("%shas a port; write the host alone%s, and the port as an option: options = [ \"Port=%s\" ]", shown, suggestion(name), port)
	}
	// The patterns of the schema have no way to write a backslash.
	if !schema.Matches("host", bare) || strings.ContainsAny(bare, `\[]`) || hasBlank(bare) || hasControl(bare) {
		return fmt.Errorf("%swanted %s", shown, schema.Description("host"))
	}
	switch _, err := netip.ParseAddr(bare); {
	case strings.Contains(bare, ":") && err != nil:
		return fmt.Errorf("%sis no IPv6 address, and no name has a colon", shown)
	case strings.Contains(bare, "%") && err != nil:
		// ssh expands % in the commands that it makes of a host.
		return fmt.Errorf("%shas a %%, which only the zone of an IPv6 address has, as in fe80::1%%eth0", shown)
	}
	return nil
}

// suggestion is `, as "web"`, when that is a host.
func suggestion(host string) string {
	if name, _, found := cutPort(host); found {
		host = name
	}
	if host == "" || strings.ContainsAny(host, "@/") || CheckHost(host) != nil {
		return ""
	}
	return fmt.Sprintf(", as %q", unbracket(host))
}

// cutPort parts web:22 and [::1]:22. An IPv6 address without brackets has no
// port: where it would begin, nobody can tell.
func cutPort(host string) (name, port string, found bool) {
	i := strings.LastIndexByte(host, ':')
	if i < 1 {
		return "", "", false
	}
	name, port = host[:i], host[i+1:]
	digits := port != "" && strings.Trim(port, "0123456789") == ""
	return name, port, digits && (!strings.Contains(name, ":") || unbracket(name) != name)
}

// CheckUser says what is wrong with a login name; empty is right.
func CheckUser(user string) error {
	shown := schema.Shown("user", user)
	if name, host, found := strings.Cut(user, "@"); found && name != "" && schema.Matches("user", name) && !hasBlank(host) && !hasControl(host) {
		return fmt.Errorf("%shas a host behind the `@`; write the user alone, as %q", shown, name)
	}
	// ssh refuses a backslash at the end and makes one of two; one alone parts domain and user.
	if !schema.Matches("user", user) || strings.HasSuffix(user, `\`) || strings.Contains(user, `\\`) || hasBlank(user) || hasControl(user) {
		return fmt.Errorf("%swanted %s", shown, schema.Description("user"))
	}
	return nil
}

// CheckKey says what is wrong with the path of a private key; empty is right.
// The text is never repeated: it may be the key itself.
func CheckKey(path string) error {
	switch {
	case schema.IsPrivateKey(path):
		return errors.New("this is a private key itself; wanted the path of its file (and take a new key: this one has been in plain sight)")
	case !schema.Matches("key", path) || hasControl(path):
		return fmt.Errorf("wanted %s", schema.Description("key"))
	}
	return nil
}

// unbracket takes the brackets from an IPv6 address.
func unbracket(host string) string {
	inner, ok := strings.CutPrefix(host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if ok && closed && strings.Contains(inner, ":") {
		return inner
	}
	return host
}

func hasBlank(s string) bool { return strings.ContainsFunc(s, unicode.IsSpace) }

// hasControl also finds the NUL byte, which the patterns of the schema can't
// name because Nix can't.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// hinter gives nearest spellings, but no more of them than anybody reads: each
// compares its word with all others.
type hinter struct {
	known []string
	given int
}

func (h *hinter) hint(word string) string {
	const limit = 20
	if h.given++; h.given > limit {
		return ""
	}
	return nearest.Hint(word, h.known)
}
