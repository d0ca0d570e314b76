package ssh

import (
	_ "embed"
	"fmt"
	"math"
	"os"
	"sync"
	"time"
)

//go:embed attended.sh
var attendedFunction string

// attendedScript defines the function attended for a script.
func attendedScript(patience time.Duration) string {
	return fmt.Sprintf("patience=%.0f\n%s", math.Ceil(patience.Seconds()), attendedFunction)
}

// attendance is a text and then a line each interval, for as long as this process lives
// and it was not closed. It is a pipe, since its end must not wait for the next line.
type attendance struct {
	*os.File
	once    sync.Once
	stop    func()
	writing sync.WaitGroup
}

func attend(text string, interval time.Duration) (*attendance, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	a := &attendance{File: r, stop: func() {
		close(stop)
		_ = w.Close() // which also ends a write that nobody reads
	}}
	a.writing.Go(func() {
		_, err := w.WriteString(text)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for err == nil {
			select {
			case <-tick.C:
				_, err = w.WriteString(".\n")
			case <-stop:
				return
			}
		}
	})
	return a, nil
}

// Close ends it, once for all.
func (a *attendance) Close() error {
	a.once.Do(func() {
		a.stop()
		_ = a.File.Close()
		a.writing.Wait()
	})
	return nil
}
