package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Stream is one of the two that a command prints on.
type Stream string

const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Output is a line of a command, or a part of one.
type Output struct {
	Time   time.Time `json:"time"`
	Node   string    `json:"node"`
	Stream Stream    `json:"stream"`
	// Text is the line without its end, where it is valid UTF-8.
	Text string `json:"text"`
	// Bytes stands for Text where it is not.
	Bytes []byte `json:"bytes,omitempty"`
	// Open says that the line did not end here: it is long and goes on in the next
	// record of this stream, or the output ended without a line end.
	Open bool `json:"open,omitempty"`
}

// NewOutput is a piece of a stream as a record.
func NewOutput(node string, stream Stream, piece []byte, open bool) Output {
	o := Output{Time: time.Now(), Node: node, Stream: stream, Open: open}
	if utf8.Valid(piece) {
		o.Text = string(piece)
	} else {
		o.Bytes = bytes.Clone(piece)
	}
	return o
}

// Exec is how a command ended on a node.
type Exec struct {
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	// Status is the exit status; null where it was not seen. 128 and more is a signal's.
	Status *int `json:"status"`
	// Verdict says why there is no status; empty where there is one. Timed-out and
	// unknown ones have begun, and were told to end; none of the others has.
	Verdict verdict.Verdict `json:"verdict,omitempty"`
	// Reason is what was seen in this case.
	Reason  string   `json:"reason,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Seconds float64  `json:"seconds"`
}

// Good tells whether the command exited 0.
func (e Exec) Good() bool { return e.Status != nil && *e.Status == 0 }

// Ending says how it ended, in words.
func (e Exec) Ending() string {
	switch {
	case e.Status != nil:
		return fmt.Sprintf("exit status %d", *e.Status)
	case e.Reason != "":
		return string(e.Verdict) + ": " + e.Reason
	}
	return string(e.Verdict)
}

// output shows a line of a command on the stream that it came on. What Text lacks of
// a line that is still open stands on a line of its own.
func (t *Text) output(o Output) error {
	text := o.Text
	if o.Bytes != nil {
		text = string(o.Bytes)
	}
	to := t.Out
	if o.Stream == Stderr {
		to = t.Err
	}
	_, err := fmt.Fprintf(to, "%s | %s\n", o.Node, Printable(strings.TrimRight(text, "\r")))
	return err
}

func (t *Text) exec(e Exec) error {
	t.commands = append(t.commands, e)
	for _, note := range e.Notes {
		if err := t.say(e.Node, "note: %s", note); err != nil {
			return err
		}
	}
	if e.Good() && !t.Verbose {
		return nil
	}
	return t.say(e.Node, "%s (%s)", e.Ending(), duration(e.Seconds))
}

// execEnding is the last line about commands. Results are what the commands printed,
// so it is not among them.
func (t *Text) execEnding(s Summary) error {
	good := 0
	for _, e := range t.commands {
		if e.Good() {
			good++
		}
	}
	return t.say("", "%s", ending(len(t.commands), good, "exited 0", s))
}

// Pieces is a writer that calls a function for each line, without its end, and for
// each part of one that is longer than 16 KiB. It is not safe for concurrent use.
type Pieces struct {
	// Piece gets the bytes, which it must not keep, and whether the line did not end
	// with them.
	Piece func(piece []byte, open bool)
	rest  []byte
}

var _ io.Writer = (*Pieces)(nil)

// Write never fails.
func (l *Pieces) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	from := 0
	for {
		rest := l.rest[from:]
		i := bytes.IndexByte(rest[:min(len(rest), maxLine+1)], '\n')
		switch {
		case i >= 0:
			l.Piece(rest[:i], false)
			from += i + 1
		case len(rest) > maxLine:
			n := whole(rest[:maxLine])
			l.Piece(rest[:n], true)
			from += n
		default:
			l.rest = append(l.rest[:0], rest...)
			return len(p), nil
		}
	}
}

// Flush takes what is left as a last piece.
func (l *Pieces) Flush() {
	if len(l.rest) > 0 {
		l.Piece(l.rest, true)
		l.rest = nil
	}
}

// whole is the length of b without a character at its end that is cut off.
func whole(b []byte) int {
	for n := len(b) - 1; n >= 0 && n >= len(b)-utf8.UTFMax; n-- {
		if utf8.RuneStart(b[n]) {
			if !utf8.FullRune(b[n:]) {
				return n
			}
			break
		}
	}
	return len(b)
}
