package cli

import (
	"strings"
	"sync"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/history"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// output hands the records of a run to its handler, one at a time.
type output struct {
	mu      sync.Mutex
	handler report.Handler
	// failed is the first error of the handler, such as a closed standard
	// output. The work goes on: a deploy must not stop half-way because nobody reads.
	failed error
	// kept takes the records for later runs; nil where none does, or no longer.
	kept *history.Writer
	// lost is told why they are not kept any more.
	lost func(error)
}

func newOutput(p Process, asJSON, noProgress, verbose bool) *output {
	if asJSON {
		return &output{handler: report.NewJSON(p.Stdout, noProgress)}
	}
	return &output{handler: &report.Text{Out: p.Stdout, Err: p.Stderr, Verbose: verbose, NoProgress: noProgress, Width: widthOf(p.Stdout)}}
}

func (o *output) emit(r report.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.handler.Handle(r); err != nil && o.failed == nil {
		o.failed = err
	}
	if o.kept != nil {
		if err := o.kept.Handle(r); err != nil {
			o.kept.Close()
			o.kept = nil
			o.lost(err)
		}
	}
}

// told is the exit code of a run that was to tell something, once all is told. What could
// not be written is said, and then the run hasn't ended well.
func (o *output) told(p Process, code int) int {
	if o.failed == nil {
		return code
	}
	say(p.Stderr, "writing the output: %v", o.failed)
	if code == verdict.ExitGood {
		return verdict.ExitFailed
	}
	return code
}

// close lets go of the run's report.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept != nil {
		o.kept.Close()
	}
}

// lines passes on what a child of the whole run prints.
func (o *output) lines(phase report.PhaseName) *report.Lines {
	return &report.Lines{Line: func(text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		o.emit(report.Record{Progress: &report.Progress{Time: time.Now(), Phase: phase, Text: text}})
	}}
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func cut(item string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(item, "=")
	return name, value, ok && name != ""
}
