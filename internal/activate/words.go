package activate

import (
	"bytes"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// wordScanner finds in a switch's log the lines that mean something. It keeps
// no more than those, so a log may have any size and hold any bytes.
//
// The texts are those of switch-to-configuration in nixpkgs, of both its Rust
// and its Perl generation, and of the pre-switch checks and inhibitors.
type wordScanner struct {
	words verdict.Words
	line  []byte
	skip  bool // the rest of an overlong line

	inhibitors bool // the lines of differing components come next
	refused    bool // the "Error:" line has been seen
}

// maxLogLine bounds what is kept of one line of the log.
const maxLogLine = 16 << 10

// maxNamed bounds each list of names; a hostile log can't fill the memory.
const maxNamed = 1000

func (s *wordScanner) Write(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		piece := p
		if i >= 0 {
			piece = p[:i]
		}
		if room := maxLogLine - len(s.line); !s.skip {
			s.line = append(s.line, piece[:min(room, len(piece))]...)
			s.skip = len(piece) > room
		}
		if i < 0 {
			return
		}
		s.flush()
		p = p[i+1:]
	}
}

// flush takes a last line that has no end.
func (s *wordScanner) flush() {
	if len(s.line) > 0 {
		s.take(strings.TrimRight(strings.ToValidUTF8(string(s.line), "�"), "\r"))
	}
	s.line, s.skip = s.line[:0], false
}

// again is how run.sh says that it runs the switch anew: what came before counts no more.
const again = "; trying once more in "

func (s *wordScanner) take(line string) {
	w := &s.words
	if strings.HasPrefix(line, "deploy-ssh: ") && strings.Contains(line, again) {
		*w, s.inhibitors, s.refused = verdict.Words{}, false, false
		return
	}
	if s.inhibitors {
		if strings.Contains(line, " -> ") {
			w.LastError = join(w.LastError, strings.TrimSpace(line))
			return
		}
		if strings.TrimSpace(line) != "" {
			s.inhibitors = false
		}
	}
	switch {
	case strings.HasPrefix(line, "warning: the following units failed: "):
		for name := range strings.SplitSeq(strings.TrimPrefix(line, "warning: the following units failed: "), ", ") {
			w.FailedUnits = add(w.FailedUnits, strings.TrimSpace(name))
		}
	case hasAnyPrefix(line, "Failed to start ", "Failed to restart ", "Failed to reload ", "Failed to stop ") && strings.Contains(line, "."):
		w.RefusedJobs = add(w.RefusedJobs, line)
	case strings.HasPrefix(line, "Failed to run activate script"),
		strings.HasPrefix(line, "Activation script snippet '") && strings.Contains(line, "' failed ("):
		w.ActivateFailed, w.LastError = true, line
	case strings.HasPrefix(line, "warning: user activation for ") && strings.HasSuffix(line, " failed"):
		name := strings.TrimSuffix(strings.TrimPrefix(line, "warning: user activation for "), " failed")
		w.UserActivation = add(w.UserActivation, name)
	case strings.HasPrefix(line, "Pre-switch check '") && strings.HasSuffix(line, "' failed"):
		w.Check = strings.TrimSuffix(strings.TrimPrefix(line, "Pre-switch check '"), "' failed")
	case strings.HasPrefix(line, "Pre-switch checks failed"):
		if w.Check == "" {
			w.Check = "its name was not given"
		}
	case strings.HasPrefix(line, "There are changes to critical components of the system:"):
		w.Inhibited, s.inhibitors = true, true
		w.LastError = ""
	case strings.HasPrefix(line, "Unable to list users with logind"):
		w.NoLogind = true
		w.LastError = line
	case w.Inhibited:
		// What differs says more than any line after it.
	case hasAnyPrefix(line, "Error: ", "error: "):
		w.LastError, s.refused = line, true
	case s.refused && strings.HasPrefix(line, "    "):
		// The cause below "Caused by:" of an error.
		w.LastError = join(w.LastError, strings.TrimSpace(line))
	case hasAnyPrefix(line, "Failed to ", "Could not ", "This is not a NixOS installation!"):
		w.LastError = line
	}
}

func join(a, b string) string {
	switch {
	case a == "":
		return b
	case len(a) > 1000:
		return a
	}
	return a + "; " + b
}

func add(list []string, name string) []string {
	if name == "" || len(list) >= maxNamed || slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
