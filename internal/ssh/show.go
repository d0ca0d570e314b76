package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// keyTypes are the host-key algorithms that are asked for, one connection each:
// a host shows one key in each connection.
var keyTypes = []string{
	"ssh-ed25519",
	"ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521",
	"rsa-sha2-512,rsa-sha2-256",
}

// recorder is run by ssh as its KnownHostsCommand with the type and the key that
// the host shows. It prints no known host, so ssh refuses the key and ends before
// it asks for a login.
const recorder = `printf '%s %s\n' "$1" "$2" >>"$0.keys"
`

// ShowHostKeys returns the public keys that the node shows, over the node's own way,
// jump hosts and all. No login on the node is tried. The error is an [*Error] when it showed none.
func (id *Identity) ShowHostKeys(ctx context.Context) ([]string, error) {
	if _, err := id.takeOver(); err != nil {
		return nil, err
	}
	script, err := (&RunDir{Path: id.dir}).Write("record", recorder)
	if err != nil {
		return nil, err
	}
	var keys []string
	var last error
	for _, types := range keyTypes {
		key, err := id.showHostKey(ctx, script, types)
		if err != nil {
			last = err
			var way *Error
			if errors.As(err, &way) && strings.Contains(way.Words, "no matching host key type found") {
				continue
			}
			return keys, err
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, last
	}
	return keys, nil
}

func (id *Identity) showHostKey(ctx context.Context, script, types string) (string, error) {
	doing := "asking " + id.Settings.Host + " for its host key"
	limit := or(id.client.LoginTimeout, defaultLoginTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	args := []string{"-F", id.file("config")}
	for _, option := range []string{
		// Only the command line comes before the file. It is not handed on to hops.
		"KnownHostsCommand=/bin/sh " + script + " %t %K",
		"HostKeyAlgorithms=" + types,
		"StrictHostKeyChecking=yes",
		"UserKnownHostsFile=none",
		"GlobalKnownHostsFile=none",
		"NoHostAuthenticationForLocalhost=no",
		"VerifyHostKeyDNS=no",
		"CheckHostIP=no",
		"ControlPath=none",
		"PreferredAuthentications=none",
	} {
		args = append(args, "-o", option)
	}
	recorded := script + ".keys"
	_ = os.Remove(recorded)
	result, err := id.client.Local.Run(ctx, child.Command{Name: "ssh", Args: append(args, "-N", "--", id.Settings.Host)})
	text, readErr := os.ReadFile(recorded)
	line, _, _ := strings.Cut(string(text), "\n")
	if readErr == nil && line != "" {
		return line, nil
	}
	said := essence(string(result.Stderr))
	var failed *child.Error
	if errors.As(err, &failed) && failed.Cause != nil {
		return "", &Error{Kind: Unreachable, Doing: doing, Words: said, Cause: failed.Cause}
	}
	return "", &Error{Kind: classify(said), Doing: doing, Words: or(said, "it showed none")}
}
