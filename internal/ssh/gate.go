package ssh

import (
	"context"
	"net"
	"strconv"
	"sync"
)

// crowd is how many logins go through one gate at once. An sshd of its own settings
// begins to refuse at ten (MaxStartups), and others log in, too.
const crowd = 8

// gate keeps apart the logins of a run that begin at the same sshd, such as a jump
// host's: it lets in only so many at once (MaxStartups) and refuses the rest in words
// that a dead host has, too. So a login that fails in a crowd is tried again alone.
type gate struct {
	mu sync.Mutex
	// in are those under way. waiting is how many would like to begin, urgent how many
	// of the others let nobody else begin.
	in              map[*visit]bool
	waiting, urgent int
	alone           bool // the one that is in wants nobody beside it
	// changed is closed, and made anew, whenever any of this changes.
	changed chan struct{}
}

// visit is one login at a gate.
type visit struct {
	gate *gate
	// crowded is whether another one was under way at any time of it.
	crowded bool
}

// gate is the one for an identity: that of its first jump host, of its proxy's
// command, or of the host itself.
func (c *Client) gate(id *Identity) *gate {
	g, _ := c.gates.LoadOrStore(id.gateway(), &gate{in: map[*visit]bool{}, changed: make(chan struct{})})
	return g.(*gate)
}

// gateway names what a connection to the node first connects to.
func (id *Identity) gateway() string {
	if len(id.Hops) > 0 {
		return net.JoinHostPort(id.Hops[0].Host, strconv.Itoa(id.Hops[0].Port))
	}
	if command := id.Effective.Get("proxycommand"); command != "" && command != "none" {
		return command
	}
	return net.JoinHostPort(id.Effective.Get("hostname"), id.Effective.Get("port"))
}

// change tells those who wait; mu is held.
func (g *gate) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// wait waits until free says so; mu is held, but not meanwhile.
func (g *gate) wait(ctx context.Context, free func() bool) error {
	for !free() {
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// visit begins a login; mu is held.
func (g *gate) visit() *visit {
	v := &visit{gate: g, crowded: len(g.in) > 0}
	for other := range g.in {
		other.crowded = true
	}
	g.in[v] = true
	g.change()
	return v
}

// enter begins a login among others, once there is room.
func (g *gate) enter(ctx context.Context) (*visit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting++
	err := g.wait(ctx, func() bool { return len(g.in) < crowd && g.urgent == 0 && !g.alone })
	g.waiting--
	if err != nil {
		g.change()
		return nil, err
	}
	return g.visit(), nil
}

// hurry begins a login that must not wait.
func (g *gate) hurry() *visit {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.visit()
}

// only begins a login beside which there is none. One that is urgent waits for those
// that are under way, any other for all that would like to begin, too: who is tried
// again because the host is dead must not keep the others waiting.
func (g *gate) only(ctx context.Context, urgent bool) (*visit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if urgent {
		g.urgent++
	}
	err := g.wait(ctx, func() bool {
		return len(g.in) == 0 && (urgent || g.waiting == 0 && g.urgent == 0)
	})
	if urgent {
		g.urgent--
	}
	if err != nil {
		g.change()
		return nil, err
	}
	g.alone = true
	return g.visit(), nil
}

// leave ends a login, and tells whether there were others meanwhile.
func (v *visit) leave() (crowded bool) {
	g := v.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.in, v)
	if len(g.in) == 0 {
		g.alone = false
	}
	g.change()
	return v.crowded
}
