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

// attend returns a file that has a text and then a line each interval, for as long as
// this process lives and end, which must be called, was not. It is a pipe, since the
// end of the child that reads it must not wait for the next line.
func attend(text string, interval time.Duration) (r *os.File, end func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
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
	return r, func() {
		close(stop)
		_ = w.Close() // which also ends a write that nobody reads
		_ = r.Close()
		writing.Wait()
	}, nil
}
