package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// forwardTimeout bounds the asking for a forward, which is one round trip.
const forwardTimeout = time.Minute

// Dir is the connection's private directory, in which a socket's path is short enough.
func (c *Conn) Dir() string { return filepath.Dir(c.controlPath) }

// Forward has the host listen on a port of its loopback that leads, through this
// connection, to a Unix socket here. It returns the port, which the host chose, and
// what ends the forward. An error means that there is none, and why.
//
// With GatewayPorts yes the host may listen on all its addresses in spite of us.
func (c *Conn) Forward(ctx context.Context, socket string) (port int, end func(), err error) {
	const doing = "asking the host to forward a port"
	limited, cancel := context.WithTimeoutCause(ctx, forwardTimeout, fmt.Errorf("no answer within %v", forwardTimeout))
	defer cancel()
	result, err := c.control(limited, "forward", "127.0.0.1:0:"+socket)
	var failed *child.Error
	switch {
	case errors.As(err, &failed) && failed.Cause != nil:
		return 0, nil, &Error{Kind: Lost, Doing: doing, Words: essence(failed.Stderr), Cause: failed.Cause}
	case err != nil:
		return 0, nil, errors.New(doing + ": " + or(strings.TrimSpace(essence(string(result.Stderr))), err.Error()))
	}
	port, err = strconv.Atoi(strings.TrimSpace(string(result.Stdout)))
	if err != nil || port <= 0 {
		return 0, nil, fmt.Errorf("%s: ssh named no port but %q", doing, result.Stdout)
	}
	return port, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		// The host forgets the port with the connection at the latest.
		_, _ = c.control(ctx, "cancel", fmt.Sprintf("127.0.0.1:%d:%s", port, socket))
	}, nil
}

func (c *Conn) control(ctx context.Context, request, forward string) (child.Result, error) {
	return c.client.Local.Run(ctx, child.Command{
		Name: "ssh", Args: []string{"-F", c.rider, "-O", request, "-R", forward, "--", riderHost}, Subject: "ssh -O " + request,
	})
}

// Compressed opens one more connection to the host, of the same identity and with
// compression, which is negotiated once per connection.
func (c *Conn) Compressed(ctx context.Context) (*Conn, error) {
	dir, err := os.MkdirTemp(c.client.Dir.Path, "z")
	if err != nil {
		return nil, fmt.Errorf("preparing a compressed connection: %w", err)
	}
	second := &Conn{
		client: c.client, identity: c.identity, destination: c.destination, elevation: c.elevation, config: c.config,
		rider: filepath.Join(dir, "rider"), controlPath: filepath.Join(dir, "ctl"),
	}
	second.options = []string{"-o", "ControlPath=" + second.controlPath, "-o", "Compression=yes"}
	if _, err := (&RunDir{Path: dir}).Write("rider", riderConfig(second.controlPath)); err != nil {
		return nil, err
	}
	if err := second.open(ctx); err != nil {
		return nil, err
	}
	return second, nil
}
