package ssh

import (
	"context"
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/hostkeys"
)

// refused is the error of a connection that ssh ended with these words.
func (c *Conn) refused(ctx context.Context, doing, words string) error {
	said := essence(words)
	e := &Error{Kind: classify(said), Doing: doing, Words: or(said, "ssh ended without a word")}
	switch e.Kind {
	case HostKeyRefused:
		if r, ok := hostkeys.ParseRefusal(words); ok {
			e.Words = c.identity.explain(r) + "\nHost key verification failed."
		}
	case LoginRefused:
		if c.client.nothingToShow(ctx, c.identity.Effective) {
			e.Words += "\nthere was nothing to log in with: no key file is set (key, or DEPLOY_SSH_KEY), no agent has a key, and none of ssh's default key files is there"
		}
	}
	return e
}

// explain says which key was expected, which was shown, and what to change
// when the new one is right.
func (id *Identity) explain(r hostkeys.Refusal) string {
	shown := "  shown:    " + or(r.Shown, "ssh did not say which")
	if id.Pinned && r.Node && (r.File == "" || r.File == id.files.pin) && !r.Revoked {
		var pins []string
		for _, key := range id.Settings.HostKeys {
			pins = append(pins, hostkeys.Fingerprint(key))
		}
		where := or(id.Settings.PinOrigin, "the node's hostKey")
		return fmt.Sprintf("the host shows another key than the pinned one\n  expected: %s (%s)\n%s\nif the host was installed again, change the pin in %s",
			strings.Join(pins, " or "), where, shown, where)
	}
	who := "the host"
	if !r.Node {
		who = "the jump host " + or(r.Host, "on the way")
	}
	file := r.File
	if file == id.files.saved && id.Saved != "" {
		file = id.Saved
	}
	switch {
	case r.Revoked:
		return fmt.Sprintf("%s shows a key that is marked as revoked (%s)\n%s", who, place(file, r.Line), shown)
	case r.Line == 0:
		return fmt.Sprintf("%s shows a key that is not known, and only known ones are taken (%s)\n%s",
			who, strings.Join(id.KnownHosts, ", "), shown)
	}
	expected := "the key there"
	if entry, ok := hostkeys.LineOf(file, r.Line); ok {
		expected = hostkeys.Fingerprint(entry.Key)
	}
	return fmt.Sprintf("%s shows another key than the saved one\n  expected: %s (%s)\n%s\nif it was installed again, remove line %d of %s: ssh-keygen -f '%[6]s' -R '%s'",
		who, expected, place(file, r.Line), shown, r.Line, file, r.Host)
}

func place(file string, line int) string {
	if file == "" {
		return "no file named"
	}
	return fmt.Sprintf("%s line %d", file, line)
}
