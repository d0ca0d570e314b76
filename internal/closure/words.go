package closure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// waysOut is what helps where a store takes signed paths only.
const waysOut = `
The host's store takes unsigned paths from trusted users only. One of these helps:
  - become root: log in as root, or set elevate = "sudo" (or "doas") for the node
  - trust the login user: add it to nix.settings.trusted-users on the host
  - sign what is built: secret-key-files on the deployer, and the public key in nix.settings.trusted-public-keys on the host`

// unsigned is the error of a user from whom the store takes signed paths only.
// Nix's own words come first, as it would say them after all had been sent.
func unsigned(user, path string) error {
	return fmt.Errorf("error: cannot add path '%s' because it lacks a signature by a trusted key\n"+
		"(nothing was sent: the user %s is not in the host's trusted-users)%s", path, user, waysOut)
}

// signatureHint adds what to do to an error about signatures.
func signatureHint(said string) error {
	if aboutSignatures(said) {
		said += waysOut
	}
	return errors.New(said)
}

// errorLines are what Nix says of why: its errors, the first of each kind.
func errorLines(text string) string {
	const most = 6
	var kept []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if (strings.Contains(line, "error:") || aboutSignatures(line)) && !slices.Contains(kept, line) && len(kept) < most {
			kept = append(kept, line)
		}
	}
	if kept == nil {
		return strings.TrimSpace(text)
	}
	// The missing signature explains what else there is.
	slices.SortStableFunc(kept, func(a, b string) int {
		switch x, y := aboutSignatures(a), aboutSignatures(b); {
		case x && !y:
			return -1
		case y && !x:
			return 1
		}
		return 0
	})
	return strings.Join(kept, "\n")
}

// aboutSignatures recognises Nix's words for a path that nobody trusted has signed:
// of a store that is given one, and of one that fetches it.
func aboutSignatures(line string) bool {
	return strings.Contains(line, "lacks a signature") || strings.Contains(line, "lacks a valid signature") ||
		strings.Contains(line, "not signed by any of the keys")
}
