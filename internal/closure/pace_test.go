package closure

import (
	"io"
	"testing"
	"time"
)

func TestNextRung(t *testing.T) {
	for _, tt := range []struct{ rung, busy, want int }{
		{1, 0, 2}, {1, looks/2 - 1, 2}, {1, looks / 2, 1}, {1, looks - 1, 1}, {1, looks, 0},
		{0, 0, 1}, {2, 0, 2}, {0, looks, 0}, {2, looks, 1},
	} {
		if got := next(tt.rung, tt.busy); got != tt.want {
			t.Errorf("rung %d, packing at %d of %d: %d, want %d", tt.rung, tt.busy, looks, got, tt.want)
		}
	}
}

// A line that takes nothing has the next NARs packed harder; a level that was asked
// for stays, and so does none.
func TestPace(t *testing.T) {
	for _, tt := range []struct {
		c           Compression
		first, last int
	}{
		{DefaultCompression, 3, 6}, {Compression{Level: 3}, 3, 3}, {Compression{Level: 12}, 12, 12}, {Compression{}, 0, 0},
	} {
		p := newPace(tt.c)
		if got := p.level(); got != tt.first {
			t.Errorf("%v begins with level %d, want %d", tt.c, got, tt.first)
		}
		end, followed := make(chan struct{}), make(chan struct{})
		go func() {
			p.follow(end)
			close(followed)
		}()
		r, w := io.Pipe()
		written := make(chan error)
		go func() {
			p.packing.Add(1)
			_, err := p.written(w).Write([]byte("x"))
			p.packing.Add(-1)
			written <- err
		}()
		for deadline := time.Now().Add(time.Minute); p.level() != tt.last && time.Now().Before(deadline); {
			time.Sleep(look)
		}
		_ = r.Close()
		<-written
		if got := p.level(); got != tt.last {
			t.Errorf("%v goes on with level %d, want %d", tt.c, got, tt.last)
		}
		close(end)
		<-followed
	}
}

// What a connection has of the backlog is gone with its next request.
func TestLane(t *testing.T) {
	p := newPace(DefaultCompression)
	a, b := &lane{pace: p}, &lane{pace: p}
	a.wrote(window)
	a.wrote(1) // beyond what ssh takes to itself
	b.wrote(10)
	if got := p.backlog.Load(); got != window+10 {
		t.Errorf("the backlog is %d, want %d", got, window+10)
	}
	a.arrived()
	a.wrote(5)
	a.arrived()
	b.arrived()
	b.arrived()
	if got := p.backlog.Load(); got != 0 {
		t.Errorf("the backlog is %d, want none", got)
	}
}
