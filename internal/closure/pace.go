package closure

import (
	"io"
	"sync/atomic"
	"time"
)

// pace finds out what a copy waits for, the line or the processor, and has it packed
// harder on a slow line and less hard on a fast one.
type pace struct {
	follows          bool
	fixed            int          // the level, where it doesn't follow
	packing, writing atomic.Int64 // how many NARs are being packed, and how many written, right now
	rung             atomic.Int64 // of ladder
	// backlog is how many bytes are on their way: written, and not known to have arrived.
	backlog atomic.Int64
}

// ladder is the zstd levels to choose from, a step of an encoder each. What is beyond
// takes four times the memory, and several times the processor for a percent or two.
var ladder = []int{1, 3, 6}

const (
	// look is how often it is looked what a copy does, and looks how many make a decision.
	look  = 20 * time.Millisecond
	looks = 12
	// crowded is from how large a backlog on the line is what the copy waits for, whatever
	// is packed meanwhile: ssh takes up to two megabytes of each connection to itself before
	// a writer feels the line.
	crowded = 16 << 20
	window  = 2 << 20
)

func newPace(c Compression) *pace {
	p := &pace{follows: c.Follows, fixed: c.Level}
	for i, level := range ladder {
		if level <= c.Level {
			p.rung.Store(int64(i))
		}
	}
	return p
}

// level is the level for the next NAR.
func (p *pace) level() int {
	if !p.follows {
		return p.fixed
	}
	return ladder[p.rung.Load()]
}

// follow looks until end is closed.
func (p *pace) follow(end <-chan struct{}) {
	if !p.follows {
		return
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	busy, all := 0, 0
	for {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		switch {
		case p.backlog.Load() >= crowded:
		case p.packing.Load() > 0:
			busy++
		case p.writing.Load() == 0:
			continue // nothing is wanted just now
		}
		if all++; all == looks {
			p.rung.Store(int64(next(int(p.rung.Load()), busy)))
			busy, all = 0, 0
		}
	}
}

// next is the rung to go on with after something was packed at busy of [looks].
func next(rung, busy int) int {
	switch {
	case busy*2 < looks:
		return min(rung+1, len(ladder)-1)
	case busy == looks:
		return max(rung-1, 0)
	}
	return rung
}

// lane is what one connection has of the backlog, of which its next request shows that
// it has arrived.
type lane struct {
	pace *pace
	sent atomic.Int64
}

func (l *lane) wrote(n int) {
	if l.sent.Add(int64(n)) <= window {
		l.pace.backlog.Add(int64(n))
	} else {
		l.sent.Add(-int64(n))
	}
}

func (l *lane) arrived() { l.pace.backlog.Add(-l.sent.Swap(0)) }

// written is a writer to the line for something that is being packed meanwhile.
func (p *pace) written(w io.Writer) io.Writer { return pacedWriter{w, p} }

type pacedWriter struct {
	io.Writer
	pace *pace
}

func (w pacedWriter) Write(b []byte) (int, error) {
	w.pace.packing.Add(-1)
	w.pace.writing.Add(1)
	defer func() {
		w.pace.writing.Add(-1)
		w.pace.packing.Add(1)
	}()
	return w.Writer.Write(b)
}
