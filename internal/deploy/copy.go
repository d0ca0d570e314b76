package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// copy brings the closure to the host, or that of the derivation where the host builds.
// A host that has it, as the probe has seen, costs nothing here.
func (d *deployment) copy(ctx context.Context) step {
	if d.host.Valid {
		return step{detail: "the closure is already on the host"}
	}
	began := time.Now()
	sent, err := d.transport.Copy(ctx, d.host, closure.Job{
		Toplevel: d.sent(),
		Boots:    d.fleet.Goal.boots() && !d.buildsThere(),
		Progress: func(text string) { d.progress(report.Copy, text, false) },
	})
	s := step{notes: sent.Notes, copied: copied(sent)}
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		s.end = &verdict.Decision{Verdict: verdict.NotStarted, Reason: "interrupted during the copy; the host was not changed"}
	case err != nil:
		s.end = &verdict.Decision{Verdict: verdict.CopyFailed, Reason: err.Error()}
	default:
		s.detail = fmt.Sprintf("%v in %.1fs", sent, time.Since(began).Seconds())
	}
	return s
}

// copied is the record of a copy; nil when nothing was sent.
func copied(s closure.Sent) *report.Copied {
	if s.By == "" {
		return nil
	}
	return &report.Copied{
		By: s.By, Why: s.Why, Paths: s.Paths, Missing: s.Missing, FromHere: s.FromHere, FromCaches: s.FromCaches,
		MissingBytes: s.MissingBytes, NarBytes: s.NarBytes, WireBytes: s.WireBytes, Tries: s.Tries,
	}
}
