// Package closure brings a system's closure into a host's store and proves
// that it arrived.
package closure

import (
	"context"
	"errors"
	"fmt"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// options are the operator's settings of Nix, as arguments.
func (e Engine) options() []string {
	var args []string
	for _, o := range e.Options {
		args = append(args, "--option", o[0], o[1])
	}
	return args
}

// nixCopy sends a closure with `nix copy`, and proves that it arrived. It is the
// way of last resort: it compresses in one stream what is compressed or not.
//
// ssh-ng sends many paths at once where ssh:// makes two round trips for each. A
// trusted user may leave out the signature check, because what is sent comes from the
// deployer's own store over an authenticated connection, and what was built there is
// not signed.
func (e Engine) nixCopy(ctx context.Context, h Host, job Job, trusted bool) error {
	way := h
	if e.Compress.Level > 0 {
		// The store URL's own compress parameter would do nothing on a shared connection.
		compressed, err := h.Compressed(ctx)
		if err != nil {
			return err
		}
		defer compressed.Close()
		way = compressed
	}
	url, env := way.NixStore(job.Daemon)
	args := append([]string{"--extra-experimental-features", "nix-command"}, e.options()...)
	args = append(args, "copy", "--to", url)
	if !e.NoSubstitute {
		args = append(args, "--substitute-on-destination")
	}
	if trusted {
		args = append(args, "--no-check-sigs")
	}
	_, err := e.Runner.Run(ctx, child.Command{
		Name: "nix", Args: append(append(args, installable(job.Toplevel)...), job.Toplevel), Env: env, Subject: "nix copy",
	})
	var failed *child.Error
	switch {
	case errors.As(err, &failed) && failed.Cause == nil:
		return signatureHint("nix copy: " + errorLines(failed.Stderr))
	case err != nil:
		return err
	}
	err = h.Run(ctx, ssh.Script{
		Doing: "looking whether the closure arrived", Text: "nix-store --check-validity '" + job.Toplevel + "'",
	})
	var invalid *ssh.ExitError
	if errors.As(err, &invalid) {
		return fmt.Errorf("nix copy ended well, but %s is not valid on the host: %s", job.Toplevel, invalid.Words)
	}
	return err
}
