package settings

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/deploy-ssh/deploy-ssh/internal/schema"
	"golang.org/x/crypto/ssh"
)

// refused are the ssh_config keywords that no option item may set, by lower
// case, with the reason. nix/schema.json refuses the same ones.
var refused = map[string]string{
	"host":                    "it would end the node's own block",
	"match":                   "it would end the node's own block",
	"include":                 "give a client configuration with DEPLOY_SSH_CONFIG instead",
	"batchmode":               "the program never asks a person",
	"requesttty":              "the program needs the remote output unchanged",
	"remotecommand":           "the program runs its own commands",
	"sessiontype":             "the program runs its own commands",
	"stdinnull":               "the program sends its scripts on standard input",
	"forkafterauthentication": "the program looks after its own connection",
	"permitlocalcommand":      "no command runs on the deployer",
	"controlmaster":           "the program looks after its own connection",
	"controlpath":             "the program looks after its own connection",
	"controlpersist":          "the program looks after its own connection",
	"loglevel":                "the program reads why ssh refused",
}

// CheckOption says what is wrong with an item of an options list (FR-017).
func CheckOption(item string) error {
	shown := schema.Shown("option", item)
	key, _, _ := strings.Cut(item, "=")
	switch {
	case strings.HasPrefix(item, "-"):
		return fmt.Errorf("%sis in command-line form; wanted %s", shown, schema.Description("option"))
	case !schema.Matches("option", item) || hasControl(item):
		return fmt.Errorf("%swanted %s", shown, schema.Description("option"))
	}
	if why, found := refused[strings.ToLower(key)]; found {
		return fmt.Errorf("%sthe keyword %s can't be set here: %s", shown, key, why)
	}
	return nil
}

// CheckHost says what is wrong with a host; empty is right.
func CheckHost(host string) error {
	bare := unbracket(host)
	// The patterns of the schema have no way to write a backslash.
	if !schema.Matches("host", bare) || strings.ContainsAny(bare, `\[]`) || hasBlank(bare) || hasControl(bare) {
		return fmt.Errorf("%swanted %s", schema.Shown("host", host), schema.Description("host"))
	}
	if strings.Contains(bare, ":") {
		if _, err := netip.ParseAddr(bare); err != nil {
			return fmt.Errorf("%sis no IPv6 address, and a port belongs into the options, as Port=2222", schema.Shown("host", host))
		}
	}
	return nil
}

// CheckUser says what is wrong with a login name; empty is right.
func CheckUser(user string) error {
	// ssh refuses a backslash at the end; elsewhere it parts domain and user.
	if !schema.Matches("user", user) || strings.HasSuffix(user, `\`) || hasBlank(user) || hasControl(user) {
		return fmt.Errorf("%swanted %s", schema.Shown("user", user), schema.Description("user"))
	}
	return nil
}

// CheckKey says what is wrong with the path of a private key; empty is right.
// The text is never repeated: it may be the key itself.
func CheckKey(path string) error {
	switch {
	case strings.Contains(path, "PRIVATE KEY"):
		return errors.New("this is a private key; wanted the path of its file")
	case !schema.Matches("key", path) || hasControl(path):
		return fmt.Errorf("wanted %s", schema.Description("key"))
	}
	return nil
}

// ParseHostKeys reads public key lines, with a comment or not, and returns
// them without. Blank lines and lines that begin with # don't count.
func ParseHostKeys(text string) ([]string, error) {
	var keys []string
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parseHostKey(line)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func parseHostKey(line string) (string, error) {
	if strings.Contains(line, "PRIVATE KEY") {
		return "", errors.New("this is a private key; wanted the public one, from the .pub file")
	}
	if key := publicKey(line); key != "" {
		return key, nil
	}
	// A line of known_hosts has the host in front, and perhaps a marker.
	for rest := line; ; {
		_, after, found := strings.Cut(rest, " ")
		if !found {
			break
		}
		rest = strings.TrimSpace(after)
		if key := publicKey(rest); key != "" {
			return "", fmt.Errorf("there is something before the key, as in a line of known_hosts; write %q", key)
		}
	}
	return "", fmt.Errorf("this is no public key line; wanted %s", schema.Description("hostKey"))
}

// publicKey is the line as "type base64", or "" when it doesn't begin with that.
func publicKey(line string) string {
	algorithm, _, _ := strings.Cut(line, " ")
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	// The parser skips options in front and goes on to later lines; a host
	// key line has neither. A certificate is no host key to compare with.
	if err != nil || len(rest) > 0 || key.Type() != algorithm {
		return ""
	}
	if _, isCertificate := key.(*ssh.Certificate); isCertificate {
		return ""
	}
	return string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)))
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
