package hostkeys

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"golang.org/x/crypto/ssh"
)

// Entry is a line of a known_hosts file that speaks of a host.
type Entry struct {
	File string
	// Line counts from 1.
	Line int
	// Text is the line as it stands in the file.
	Text string
	// Marker is "cert-authority", "revoked", or empty for a plain host key.
	Marker string
	// Key is the key's type and base64 form.
	Key string
}

// lookUpTimeout bounds one look into a known_hosts file.
const lookUpTimeout = 30 * time.Second

// LookUp returns the entries that a known_hosts file has for a name, as ssh-keygen(1)
// finds them: hashed names, patterns and markers are read by OpenSSH itself.
// A file that is not there has none.
func LookUp(ctx context.Context, runner child.Runner, file, name string) ([]Entry, error) {
	if info, err := os.Stat(file); err != nil || info.IsDir() || info.Size() == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookUpTimeout, fmt.Errorf("no answer within %v", lookUpTimeout))
	defer cancel()
	result, err := runner.Run(ctx, child.Command{
		Name: "ssh-keygen", Args: []string{"-F", name, "-f", file}, Subject: "looking " + name + " up in " + file,
	})
	var failed *child.Error
	if errors.As(err, &failed) && failed.ExitCode == 1 && failed.Cause == nil {
		return nil, nil // not found
	}
	if err != nil {
		return nil, err
	}
	return parseFound(file, result.Stdout), nil
}

// parseFound reads what `ssh-keygen -F` prints: for each entry a comment that
// ends in "found: line N MARKER", and the line.
func parseFound(file string, out []byte) []Entry {
	var entries []Entry
	line := 0
	scanner := bufio.NewScanner(bytes.NewReader(out))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		text := scanner.Text()
		if _, found, ok := strings.Cut(text, " found: line "); ok && strings.HasPrefix(text, "# Host ") {
			number, _, _ := strings.Cut(found, " ")
			line, _ = strconv.Atoi(number)
			continue
		}
		if e, ok := ParseLine(text); ok {
			e.File, e.Line = file, line
			entries = append(entries, e)
		}
	}
	return entries
}

// ParseLine reads one line of a known_hosts file; ok is false for one that has no entry.
func ParseLine(text string) (e Entry, ok bool) {
	marker, _, key, _, rest, err := ssh.ParseKnownHosts([]byte(text))
	if err != nil || len(rest) > 0 {
		return Entry{}, false
	}
	return Entry{Text: text, Marker: marker, Key: authorized(key)}, true
}

// LineOf returns the entry at a line of a file.
func LineOf(file string, line int) (Entry, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Entry{}, false
	}
	lines := strings.Split(string(text), "\n")
	if line < 1 || line > len(lines) {
		return Entry{}, false
	}
	e, ok := ParseLine(strings.TrimRight(lines[line-1], "\r"))
	e.File, e.Line = file, line
	return e, ok
}

func authorized(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// Fingerprint is what ssh shows of a public key: its type and SHA256 hash.
func Fingerprint(publicKey string) string {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(publicKey))
	if err != nil {
		return "no readable key"
	}
	return Label(key.Type()) + " " + ssh.FingerprintSHA256(key)
}

// Label is a key type as OpenSSH names it to people, such as ED25519 for ssh-ed25519.
func Label(keyType string) string {
	switch {
	case strings.HasPrefix(keyType, "ecdsa-sha2-"):
		return "ECDSA"
	case strings.HasPrefix(keyType, "sk-ssh-ed25519"):
		return "ED25519-SK"
	case strings.HasPrefix(keyType, "sk-ecdsa-sha2-"):
		return "ECDSA-SK"
	}
	return strings.ToUpper(strings.TrimPrefix(keyType, "ssh-"))
}

// Add appends lines to a known_hosts file, which it makes if it is not there.
func Add(file string, lines []string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	text := strings.Join(lines, "\n") + "\n"
	// The last line may lack its end, and then ours would be part of it.
	if info, statErr := f.Stat(); statErr == nil && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			text = "\n" + text
		}
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
