package deploy

import (
	"sync"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
)

// outlet passes the records of a node on or, while the node's turn has not come, holds
// them back. The zero value passes them on.
type outlet struct {
	mu      sync.Mutex
	holding bool
	held    []report.Record
}

// hold keeps records from now on.
func (o *outlet) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holding = true
}

// open passes on what was held, and all that follows.
func (o *outlet) open(f *Fleet) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.held {
		f.emit(r)
	}
	o.holding, o.held = false, nil
}

// discard forgets what was held, and passes on what follows.
func (o *outlet) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holding, o.held = false, nil
}

func (o *outlet) pass(f *Fleet, r report.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holding {
		o.held = append(o.held, r)
		return
	}
	f.emit(r)
}
