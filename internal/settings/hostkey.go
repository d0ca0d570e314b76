package settings

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/schema"
	"golang.org/x/crypto/ssh"
)

// ParseHostKeys reads the public key lines of a pin and returns each as "type
// base64", without its comment. Blank lines and lines that begin with # don't
// count. The empty text is no pin; a text without a key is an error, since a
// node would go unpinned in silence.
//
// A pin is the host's own key. Certificates, authorities and revoked keys, which
// vouch for other keys or against them, are refused: they belong into a
// known_hosts file, which an option names.
func ParseHostKeys(text string) ([]string, error) {
	if schema.IsPrivateKey(text) {
		return nil, errors.New("this is a private key; wanted the public one, from the .pub file (and take a new key: this one has been in plain sight)")
	}
	var keys, problems []string
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.Trim(line, blanks)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parseHostKey(strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(blanks, r) }))
		if err != nil {
			where := ""
			if len(lines) > 1 {
				where = fmt.Sprintf("line %d: ", i+1)
			}
			problems = append(problems, where+err.Error())
			continue
		}
		keys = append(keys, key)
	}
	switch {
	case len(problems) > 0:
		return nil, errors.New(strings.Join(problems, "; "))
	case len(keys) == 0 && text != "":
		return nil, fmt.Errorf("there is no key in it; wanted %s", schema.Description("hostKey"))
	}
	return keys, nil
}

// blanks part the words of a line; a file from Windows has \r at its ends.
const blanks = " \t\r"

const knownHostsInstead = "put the line into a known_hosts file and name that with the option UserKnownHostsFile=PATH"

// parseHostKey reads one line, given as its words.
func parseHostKey(words []string) (string, error) {
	key, err := publicKey(words)
	if err == nil {
		return key, nil
	}
	if marker := words[0]; strings.HasPrefix(marker, "@") {
		switch marker {
		case "@cert-authority":
			return "", errors.New("this is a certificate authority, which vouches for many hosts; a pin is one host's own key: " + knownHostsInstead)
		case "@revoked":
			return "", errors.New("this is a revoked key, the opposite of a pin: " + knownHostsInstead)
		}
	}
	if err != errNoKey {
		return "", err
	}
	// A line of known_hosts has the host in front, one of authorized_keys has options.
	for i := 1; i < len(words); i++ {
		key, err := publicKey(words[i:])
		if err == nil {
			return "", fmt.Errorf("there is something before the key, as in ssh-keyscan's output or in known_hosts; write %q", key)
		}
		if err != errNoKey {
			return "", err
		}
	}
	return "", fmt.Errorf("this is no public key line, or one cut short; wanted %s", schema.Description("hostKey"))
}

var errNoKey = errors.New("not a key")

// publicKey is the key that the words begin with, as "type base64".
// The error is errNoKey when there is none, else it says why it can't be a pin.
func publicKey(words []string) (string, error) {
	if len(words) < 2 {
		return "", errNoKey
	}
	if words[0] == "ssh-dss" {
		return "", errors.New("this is a DSA key, which ssh takes no more; pin another key of the host")
	}
	// The parser skips options in front and goes on to later lines; here is neither.
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(words[0] + " " + words[1]))
	if err != nil || key.Type() != words[0] {
		return "", errNoKey
	}
	if certificate, ok := key.(*ssh.Certificate); ok {
		return "", fmt.Errorf("this is a host certificate, which will expire; pin the key that it is about, %q, or its authority: put a @cert-authority line into a known_hosts file and name that with the option UserKnownHostsFile=PATH",
			marshal(certificate.Key))
	}
	return marshal(key), nil
}

func marshal(key ssh.PublicKey) string {
	return string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)))
}
