package closure

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/bytesize"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

const (
	// interval is how often progress is told.
	interval = time.Second
	// quiet is after how long without any it is asked why.
	quiet = 10 * time.Second
)

//go:embed heldup.sh
var heldUpScript string

// meter tells while a copy goes on how far it is, from what the cache has counted.
type meter struct {
	end  chan struct{}
	done sync.WaitGroup
}

func newMeter(count func() counts, sent Sent, heldUp func() string, progress func(string)) *meter {
	m := &meter{end: make(chan struct{})}
	began := time.Now()
	m.done.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		last, asked := counts{here: -1}, began
		for {
			select {
			case <-m.end:
				return
			case <-tick.C:
			}
			if now := count(); now != last {
				progress(progressText(now, sent, time.Since(began)))
				last, asked = now, time.Now()
			} else if time.Since(asked) >= quiet {
				if why := heldUp(); why != "" {
					progress(why)
				}
				asked = time.Now()
			}
		}
	})
	return m
}

// heldUp asks a host what its store waits for; empty when that can't be told.
func heldUp(ctx context.Context, h Host) string {
	var answer bytes.Buffer
	// Whatever goes wrong here is of no matter to the copy.
	_ = h.Run(ctx, ssh.Script{Doing: "asking the host what it waits for", Text: heldUpScript, Output: &answer, Timeout: quiet})
	holder := strings.TrimSpace(answer.String())
	if holder == "" {
		return ""
	}
	return "the host's store waits for a lock of another process there: " + holder
}

// stop ends it. Nothing is told after stop has returned.
func (m *meter) stop() {
	close(m.end)
	m.done.Wait()
}

// counts are how far a copy is.
type counts struct {
	here, caches int64 // paths that were sent from here, and that the host took from its own caches
	nars, wire   int64 // bytes of what was packed from here, and of what went over the line for it
}

func count(c *cache, h *hearing) counts {
	return counts{here: c.paths.Load(), caches: h.caches.Load(), nars: c.packed.Load(), wire: c.sent.Load()}
}

// progressText is one line of progress. How large the paths are that came from the
// host's own caches isn't known here: the time left supposes that they are like the rest.
func progressText(c counts, s Sent, took time.Duration) string {
	text := fmt.Sprintf("%d of %d paths, %s of %s sent as %s, %s/s", min(c.here+c.caches, int64(s.Missing)), s.Missing,
		bytesize.Text(c.nars), bytesize.Text(s.MissingBytes), bytesize.Text(c.wire), bytesize.Text(int64(float64(c.wire)/took.Seconds())))
	if c.caches > 0 {
		text += fmt.Sprintf(", %d paths from the host's own caches", c.caches)
	}
	done := float64(c.nars) / float64(s.MissingBytes)
	if c.caches > 0 {
		done = max(done, float64(c.here+c.caches)/float64(s.Missing))
	}
	if 0 < done && done < 1 {
		text += fmt.Sprintf(", %v left", time.Duration(float64(took)*(1-done)/done).Round(time.Second))
	}
	return text
}
