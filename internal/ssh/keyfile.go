package ssh

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"golang.org/x/crypto/ssh"
)

// keyTimeout bounds the reading of one key file and one question to the agent.
const keyTimeout = 30 * time.Second

// checkKey says why a private key file can't be used without a person; nil when
// it can. OpenSSH itself reads the file, so its rules are the ones that count.
// agent is the socket of the agent in use; empty when there is none.
func (c *Client) checkKey(ctx context.Context, path, agent string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, keyTimeout, fmt.Errorf("no answer within %v", keyTimeout))
	defer cancel()
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory; wanted a private key file", path)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return fmt.Errorf("the key file %s can't be read: %w", path, unwrapped(err))
	}
	// The public half alone is enough where an agent has the other one.
	if public, _, _, _, err := ssh.ParseAuthorizedKey(text); err == nil {
		if err := c.inAgent(ctx, public, agent); err != nil {
			return fmt.Errorf("%s is a public key, so an agent must hold its private half: %w", path, err)
		}
		return nil
	}
	_, err = c.Local.Run(ctx, child.Command{Name: "ssh-keygen", Args: []string{"-y", "-P", "", "-f", path}})
	var failed *child.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &failed) || failed.Cause != nil:
		return fmt.Errorf("reading the key file %s: %w", path, err)
	case strings.Contains(failed.Stderr, "incorrect passphrase"):
		if err := c.protectedKey(ctx, path, text, agent); err != nil {
			return fmt.Errorf("the key file %s has a passphrase, which nobody is asked for, and %w (ssh-add %[1]s adds it to an agent)", path, err)
		}
		return nil
	case strings.Contains(failed.Stderr, "bad permissions"):
		return fmt.Errorf("ssh ignores the key file %s: its permissions %04o are too open; others must not be able to read it (chmod 600 %[1]s)",
			path, info.Mode().Perm())
	}
	return fmt.Errorf("the key file %s has no private key that ssh can read: %s", path, failed.Stderr)
}

// protectedKey asks the agent for a key whose file has a passphrase.
func (c *Client) protectedKey(ctx context.Context, path string, text []byte, agent string) error {
	public, err := publicHalf(path, text)
	if err != nil {
		return err
	}
	return c.inAgent(ctx, public, agent)
}

// publicHalf is found where ssh finds it: in FILE.pub, or in front of the protected part.
func publicHalf(path string, text []byte) (ssh.PublicKey, error) {
	if beside, err := os.ReadFile(path + ".pub"); err == nil {
		if public, _, _, _, err := ssh.ParseAuthorizedKey(beside); err == nil {
			return public, nil
		}
	}
	var missing *ssh.PassphraseMissingError
	if _, err := ssh.ParseRawPrivateKey(text); errors.As(err, &missing) && missing.PublicKey != nil {
		return missing.PublicKey, nil
	}
	return nil, fmt.Errorf("there is no %s.pub by which ssh could find it in an agent", path)
}

// inAgent makes sure that the agent holds a key.
func (c *Client) inAgent(ctx context.Context, public ssh.PublicKey, agent string) error {
	if agent == "" {
		return errors.New("there is no agent")
	}
	result, err := c.Local.Run(ctx, child.Command{
		Name: "ssh-add", Args: []string{"-L"}, Env: []string{"SSH_AUTH_SOCK=" + agent},
	})
	if err != nil {
		var failed *child.Error
		if errors.As(err, &failed) && failed.ExitCode == 1 {
			return errors.New("the agent holds no keys")
		}
		return fmt.Errorf("the agent does not answer: %w", err)
	}
	wanted := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))
	for line := range strings.Lines(string(result.Stdout)) {
		if strings.HasPrefix(line, wanted) {
			return nil
		}
	}
	return errors.New("the agent does not hold it")
}

// agentSocket is the socket of the agent that ssh would ask (ssh_config(5),
// IdentityAgent); empty when there is none.
func (c *Client) agentSocket(e Effective) string {
	switch value := e.Get("identityagent"); {
	case value == "" || value == "SSH_AUTH_SOCK":
		return c.getenv("SSH_AUTH_SOCK")
	case strings.EqualFold(value, "none"):
		return ""
	case strings.HasPrefix(value, "$"):
		return c.getenv(strings.Trim(value, "${}"))
	default:
		return c.home(value)
	}
}

// nothingToShow reports whether ssh has nothing to log in with: no agent, and none
// of the files that it would try. Then it is refused by all but hosts that ask for nothing.
func (c *Client) nothingToShow(ctx context.Context, e Effective) bool {
	for _, file := range e["identityfile"] {
		if _, err := os.Stat(c.home(file)); err == nil {
			return false
		}
	}
	agent := c.agentSocket(e)
	if agent == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	_, err := c.Local.Run(ctx, child.Command{Name: "ssh-add", Args: []string{"-L"}, Env: []string{"SSH_AUTH_SOCK=" + agent}})
	return err != nil
}

// home expands a leading ~/ as ssh does, which goes by the user's entry in the
// password file and not by HOME.
func (c *Client) home(path string) string {
	rest, ok := strings.CutPrefix(path, "~/")
	if !ok {
		return path
	}
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil && u.HomeDir != "" {
		return filepath.Join(u.HomeDir, rest)
	}
	return filepath.Join(c.getenv("HOME"), rest)
}

func (c *Client) getenv(name string) string {
	for i := len(c.Local.Env) - 1; i >= 0; i-- {
		if key, value, _ := strings.Cut(c.Local.Env[i], "="); key == name {
			return value
		}
	}
	return ""
}

// unwrapped leaves out the path, which the error names already.
func unwrapped(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
