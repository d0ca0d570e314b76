package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"golang.org/x/crypto/ssh"
)

// namedFiles checks the files that the options name for a login as the settings' key is
// checked: ssh passes over one that is missing, and the host then refuses the login. The
// client configuration's own and ssh's default ones are the user's, and may be missing.
func (id *Identity) namedFiles(ctx context.Context) []Problem {
	var problems []Problem
	for i, item := range id.Settings.Options {
		if err := id.namedFile(ctx, item); err != nil {
			problems = append(problems, Problem{Field: "options", Index: i, Text: fmt.Sprintf("%q: %s", item, err)})
		}
	}
	return problems
}

func (id *Identity) namedFile(ctx context.Context, item string) error {
	keyword := strings.ToLower(optionKey(item))
	switch keyword {
	case "identityfile2": // a name that ssh still takes
		keyword = "identityfile"
	case "identityfile", "certificatefile":
	default:
		return nil
	}
	// The item alone tells its own value, by ssh's rules of quoting.
	alone, err := id.client.ask(ctx, "-F", "none", "-o", item, "--", riderHost)
	if err != nil {
		return nil // which is told as a refusal of the item
	}
	value := alone.Get(keyword)
	if value == "" || strings.EqualFold(value, "none") {
		return nil
	}
	path, err := id.expanded(ctx, value)
	switch {
	case err != nil:
		return err
	case path == "":
		return nil
	case keyword == "certificatefile":
		return checkCertificate(id.client.absolute(path))
	}
	return id.client.checkKeyOnce(ctx, id.client.absolute(path), id.client.agentSocket(id.Effective))
}

// expanded is the path of a file as ssh will open it. `ssh -G` prints the names of key files
// as they were written, but that of the control socket expanded, and by the same rules: ~,
// ${VARIABLE} and % with what belongs to this node (ssh_config(5), TOKENS). Empty means that
// it can't be told before ssh does it.
func (id *Identity) expanded(ctx context.Context, value string) (string, error) {
	if !strings.Contains(value, "%") && !strings.Contains(value, "${") && !strings.HasPrefix(value, "~") {
		return value, nil
	}
	if id.Effective == nil {
		return "", nil // ssh refuses the configuration, which is told
	}
	e, err := id.client.ask(ctx, "-F", id.file("config"), "-o", "ControlPath="+quoted(value), "--", id.Settings.Host)
	var refused *child.Error
	switch {
	case errors.As(err, &refused) && refused.Cause == nil:
		return "", fmt.Errorf("ssh can't expand it: %s", ownWords(refused.Stderr))
	case err != nil:
		return "", err
	}
	if path := e.Get("controlpath"); path != value {
		return path, nil
	}
	return "", nil // an ssh that prints it unexpanded
}

// checkCertificate says why a file is no certificate to log in with; nil when it is one.
func checkCertificate(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the certificate file %s can't be read: %w", path, unwrapped(err))
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if _, ok := public.(*ssh.Certificate); err != nil || !ok {
		return fmt.Errorf("the certificate file %s has no certificate that ssh can read", path)
	}
	return nil
}
