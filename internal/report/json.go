package report

import (
	"encoding/json"
	"io"
)

// JSON writes each record as one line.
type JSON struct {
	encoder    *json.Encoder
	noProgress bool
}

// NewJSON returns a handler that writes to w, with or without progress records.
func NewJSON(w io.Writer, noProgress bool) *JSON {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return &JSON{encoder, noProgress}
}

// Handle implements [Handler].
func (j *JSON) Handle(r Record) error {
	if r.Progress != nil && j.noProgress {
		return nil
	}
	return j.encoder.Encode(r)
}
