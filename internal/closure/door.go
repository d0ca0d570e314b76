package closure

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// door is where a cache is reached: a socket here and, unless that was refused, a
// port of the host that leads to it.
type door struct {
	socket  string
	port    int
	took    time.Duration // how long the host took to open the port: a round trip and a little
	refused error
	closers []func()
}

func open(ctx context.Context, h Host, c *cache) *door {
	d := &door{socket: filepath.Join(h.Dir(), "cache")}
	_ = os.Remove(d.socket) // of an earlier copy over this connection
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", d.socket)
	if err != nil {
		d.refused = fmt.Errorf("making a socket: %w", err)
		return d
	}
	d.closers = append(d.closers, c.serve(ctx, listener))
	d.forward(ctx, h)
	return d
}

// forward asks the host for a port, a new one after the connection was lost.
func (d *door) forward(ctx context.Context, h Host) {
	var end func()
	asked := time.Now()
	defer func() { d.took = time.Since(asked) }()
	if d.port, end, d.refused = h.Forward(ctx, d.socket); d.refused == nil {
		d.closers = append(d.closers, end)
	}
}

// close ends it all, the port first.
func (d *door) close() {
	for _, c := range slices.Backward(d.closers) {
		c()
	}
}
