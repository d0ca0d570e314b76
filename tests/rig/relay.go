package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// LinkSpec is how a relay's link differs from a perfect one.
type LinkSpec struct {
	// Latency is how long each byte is on its way, in each direction:
	// half of a round trip.
	Latency time.Duration
	// BytesPerSecond is what all connections together get in each direction.
	// Zero means no limit.
	BytesPerSecond int
}

// Relay is a port on the deployer's loopback that leads to a port of a target over a slow link.
// It works on TCP connections, not on packets:
// the deployer's connection is accepted before the target has been asked,
// and at most 16 MiB are on their way at once in each direction of a connection.
type Relay struct {
	// Addr is 127.0.0.1, the address on the deployer.
	Addr string
	// Port is the port there.
	Port int

	network string // path of the deployer's network namespace
	target  string
	up      *lane // to the target
	down    *lane

	ctx         context.Context // ends at Close
	cancel      context.CancelCauseFunc
	connections atomic.Int64
	workers     sync.WaitGroup // one accepting loop at most, and one for each connection

	mu       sync.Mutex
	listener net.Listener  // nil while refusing
	frozen   chan struct{} // of the connections from now on; closed by Freeze
	live     map[*net.TCPConn]bool
	errs     []error
}

// Relay opens a relay to a port of a host. The caller must close it.
func (r *Rig) Relay(ctx context.Context, target *Host, port int, spec LinkSpec) (*Relay, error) {
	relay := &Relay{
		Addr:    "127.0.0.1",
		network: r.keeper.root(r.dir, "net", deployerName),
		target:  net.JoinHostPort(target.Addr, strconv.Itoa(port)),
		up:      newLane(spec),
		down:    newLane(spec),
		live:    map[*net.TCPConn]bool{},
		frozen:  make(chan struct{}),
	}
	// The relay ends at Close, not with the context of its making.
	relay.ctx, relay.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := relay.Mend(ctx); err != nil {
		return nil, err
	}
	return relay, nil
}

// Sent is the number of bytes that have reached the target.
func (r *Relay) Sent() int64 { return r.up.bytes.Load() }

// Received is the number of bytes that have reached the deployer.
func (r *Relay) Received() int64 { return r.down.bytes.Load() }

// Connections is the number of connections that the relay has accepted.
func (r *Relay) Connections() int { return int(r.connections.Load()) }

// Cut resets all live connections, on both sides. What was on its way is lost.
// With refuse, new connections are refused until [Relay.Mend].
func (r *Relay) Cut(refuse bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if refuse && r.listener != nil {
		r.listener.Close()
		r.listener = nil
	}
	for c := range r.live {
		c.SetLinger(0) // a reset, not an orderly end
		c.Close()
	}
}

// Freeze lets nothing more pass on any live connection, in silence and for good: neither
// side is told, nor hears of the other's end. New connections are as before.
func (r *Relay) Freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.frozen)
	r.frozen = make(chan struct{})
}

// Mend has the relay take connections again, on the same port.
func (r *Relay) Mend(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		return nil
	}
	var listener net.Listener
	err := inNetwork(r.network, func() (err error) {
		var config net.ListenConfig
		listener, err = config.Listen(ctx, "tcp4", net.JoinHostPort(r.Addr, strconv.Itoa(r.Port)))
		return err
	})
	if err != nil {
		return fmt.Errorf("opening a relay on the deployer: %w", err)
	}
	r.listener = listener
	r.Port = listener.Addr().(*net.TCPAddr).Port
	r.workers.Go(func() { r.accept(listener) })
	return nil
}

// Close ends the relay and its connections.
// It tells what went wrong meanwhile, other than connections that were closed or cut.
func (r *Relay) Close() error {
	r.cancel(net.ErrClosed)
	r.Cut(true)
	r.workers.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
}

func (r *Relay) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			r.mu.Lock()
			r.errs = append(r.errs, err)
			r.mu.Unlock()
			return
		}
		r.connections.Add(1)
		near := c.(*net.TCPConn)
		if r.add(near) {
			r.mu.Lock()
			frozen := r.frozen
			r.mu.Unlock()
			r.workers.Go(func() { r.serve(near, frozen) })
		}
	}
}

// add makes a connection one that [Relay.Cut] ends.
func (r *Relay) add(c *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		c.Close()
		return false
	}
	r.live[c] = true
	return true
}

func (r *Relay) drop(c *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, c)
	c.Close()
}

// serve carries one connection to its end.
func (r *Relay) serve(near *net.TCPConn, frozen <-chan struct{}) {
	defer r.drop(near)
	var far *net.TCPConn
	err := inNetwork(r.network, func() error {
		c, err := (&net.Dialer{}).DialContext(r.ctx, "tcp", r.target)
		if err == nil {
			far = c.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		near.SetLinger(0) // the deployer sees a reset where the target refused
		return
	}
	if !r.add(far) {
		return
	}
	defer r.drop(far)
	var lanes sync.WaitGroup
	lanes.Go(func() { r.up.carry(r.ctx, far, near, frozen) })
	lanes.Go(func() { r.down.carry(r.ctx, near, far, frozen) })
	lanes.Wait()
}

// lane is one direction of a link.
type lane struct {
	spec  LinkSpec
	chunk int // how many bytes go at once
	bytes atomic.Int64

	mu   sync.Mutex
	free time.Time // when what was taken on has left the sender
}

// parcel is some bytes, or the end of all bytes.
type parcel struct {
	bytes []byte
	end   error // [io.EOF] when it is an orderly one
	due   time.Time
}

// lateness is how late the machine may wake a lane up without loss.
const lateness = 10 * time.Millisecond

// parcels is how many may be on their way.
const parcels = 1024

func newLane(spec LinkSpec) *lane {
	l := &lane{spec: spec, chunk: 16 << 10}
	if spec.BytesPerSecond > 0 {
		// A hundred a second, so that a slow link is smooth.
		l.chunk = min(l.chunk, max(512, spec.BytesPerSecond/100))
	}
	return l
}

// carry moves bytes until either connection ends. The end travels like a byte:
// an orderly one ends this direction, a reset becomes a reset of the other connection.
// A frozen one ends with ctx.
func (l *lane) carry(ctx context.Context, to, from *net.TCPConn, frozen <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	way := make(chan parcel, parcels)
	var sender sync.WaitGroup
	sender.Go(func() {
		defer close(way)
		l.send(ctx, way, from)
	})
	defer sender.Wait()
	defer cancel()
	for p := range way {
		if !sleepUntil(ctx, p.due) {
			return
		}
		select {
		case <-frozen:
			<-ctx.Done()
			return
		default:
		}
		if p.end == io.EOF {
			to.CloseWrite()
			return
		}
		if p.end != nil {
			to.SetLinger(0)
			to.Close()
			return
		}
		n, err := to.Write(p.bytes)
		l.bytes.Add(int64(n))
		if err != nil {
			from.SetLinger(0)
			from.Close() // which also ends the sender
			return
		}
	}
}

// send puts what it reads on its way, and then the end of it.
func (l *lane) send(ctx context.Context, way chan<- parcel, from *net.TCPConn) {
	for {
		buf := make([]byte, l.chunk)
		n, err := from.Read(buf)
		if n > 0 {
			left := l.depart(n)
			if !sleepUntil(ctx, left) || !put(ctx, way, parcel{bytes: buf[:n], due: left.Add(l.spec.Latency)}) {
				return
			}
		}
		if err != nil {
			put(ctx, way, parcel{end: err, due: time.Now().Add(l.spec.Latency)})
			return
		}
	}
}

// depart takes n bytes on, and tells when the last of them will have left.
func (l *lane) depart(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.spec.BytesPerSecond <= 0 {
		return now
	}
	// A wake-up that came late is made good: else the lateness of each chunk would
	// halve a fast link.
	if earliest := now.Add(-lateness); l.free.Before(earliest) {
		l.free = earliest
	}
	l.free = l.free.Add(time.Duration(n) * time.Second / time.Duration(l.spec.BytesPerSecond))
	return l.free
}

func put(ctx context.Context, way chan<- parcel, p parcel) bool {
	select {
	case way <- p:
		return true
	case <-ctx.Done():
		return false
	}
}

func sleepUntil(ctx context.Context, when time.Time) bool {
	wait := time.Until(when)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
