package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
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
	ask := func(ctx context.Context, request uint32, port int) (int, error) {
		control, stop, err := dialMux(ctx, c.controlPath)
		if err != nil {
			return 0, err
		}
		defer stop()
		defer control.Close()
		return control.forward(request, port, socket)
	}
	port, err = ask(limited, muxOpenForward, 0)
	switch {
	case limited.Err() != nil:
		return 0, nil, &Error{Kind: Lost, Doing: doing, Cause: context.Cause(limited)}
	case errors.Is(err, errRefused):
		return 0, nil, fmt.Errorf("%s: %w", doing, err)
	case err != nil:
		return 0, nil, &Error{Kind: Lost, Doing: doing, Cause: c.master.Load().gone(err)}
	}
	return port, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		// The host forgets the port with the connection at the latest.
		_, _ = ask(ctx, muxCloseForward, port)
	}, nil
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
