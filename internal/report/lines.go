package report

import "bytes"

// Lines is a writer that calls a function for each line, without its end.
// It is not safe for concurrent use.
type Lines struct {
	Line func(string)
	rest []byte
}

// maxLine is where a line without an end is broken.
const maxLine = 16 << 10

// Write never fails.
func (l *Lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		switch {
		case i >= 0:
			l.Line(string(bytes.TrimRight(l.rest[:i], "\r")))
			l.rest = l.rest[i+1:]
		case len(l.rest) > maxLine:
			l.Line(string(l.rest))
			l.rest = nil
		default:
			return len(p), nil
		}
	}
}

// Flush takes what is left as the last line.
func (l *Lines) Flush() {
	if len(l.rest) > 0 {
		l.Line(string(l.rest))
		l.rest = nil
	}
}
