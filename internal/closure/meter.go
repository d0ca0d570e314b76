package closure

import (
	"fmt"
	"sync"
	"time"
)

// interval is how often progress is told.
const interval = time.Second

// meter tells while a copy goes on how far it is, from what the cache has counted.
type meter struct {
	end  chan struct{}
	done sync.WaitGroup
}

func newMeter(c *cache, s Sent, progress func(string)) *meter {
	m := &meter{end: make(chan struct{})}
	began := time.Now()
	m.done.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		last := ""
		for {
			select {
			case <-m.end:
				return
			case <-tick.C:
				text := progressText(c.paths.Load(), c.nars.Load(), c.sent.Load(), s, time.Since(began))
				if text != last {
					progress(text)
				}
				last = text
			}
		}
	})
	return m
}

// stop ends it. Nothing is told after stop has returned.
func (m *meter) stop() {
	close(m.end)
	m.done.Wait()
}

// progressText is one line of progress. The time left supposes that what is left is
// sent from here like what was.
func progressText(paths, nars, wire int64, s Sent, took time.Duration) string {
	text := fmt.Sprintf("%d of %d paths, %s of %s sent as %s, %s/s", paths, s.Missing,
		bytesText(nars), bytesText(s.MissingBytes), bytesText(wire), bytesText(int64(float64(wire)/took.Seconds())))
	if nars > 0 && nars < s.MissingBytes {
		left := time.Duration(float64(took) * float64(s.MissingBytes-nars) / float64(nars))
		text += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return text
}
