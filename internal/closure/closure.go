// Package closure brings a system's closure into a host's store and proves
// that it arrived.
package closure

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// DefaultTimeout bounds the copy of one closure.
const DefaultTimeout = 6 * time.Hour

// Copier sends closures with `nix copy` over an open connection.
//
// The connection is compressed by its master: compression is negotiated once
// per connection, so the store URL's own compress parameter would do nothing.
type Copier struct {
	// Runner runs Nix on the deployer.
	Runner child.Runner
	// Options are settings of Nix that the operator gave, each a name and a value.
	Options [][2]string
	// Timeout bounds one copy; 0 means [DefaultTimeout].
	Timeout time.Duration
}

// Copy sends the closure of toplevel to a store. The host fetches from its own
// substituters what they have. url and env are from the connection.
// progress receives Nix's messages as they come; nil drops them.
//
// The signature check is off, because what is sent comes from the deployer's own
// store over an authenticated connection, and what was built there is not signed.
func (c Copier) Copy(ctx context.Context, toplevel, url string, env []string, progress io.Writer) error {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done within %v", timeout))
	defer cancel()
	args := []string{"--extra-experimental-features", "nix-command"}
	for _, o := range c.Options {
		args = append(args, "--option", o[0], o[1])
	}
	args = append(args, "copy", "--to", url, "--substitute-on-destination", "--no-check-sigs", toplevel)
	_, err := c.Runner.Run(ctx, child.Command{
		Name:    "nix",
		Args:    args,
		Env:     env,
		Stderr:  progress,
		Subject: "nix copy",
	})
	return err
}
