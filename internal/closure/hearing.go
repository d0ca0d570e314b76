package closure

import (
	"bytes"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// hearing listens to the host's Nix while it fetches.
type hearing struct {
	// own is the address of the cache here, as Nix writes it; empty when there is none.
	own string
	// redact takes secrets out of a text.
	redact func(string) string
	// caches is how many paths the host has begun to take from caches of its own.
	caches atomic.Int64
	// waits is told what Nix waits for.
	waits func(string)

	line bytes.Buffer
	rest child.Tail // what else it said, for errors
}

// keptWords is how many bytes of what Nix says are kept for an error.
const keptWords = 64 << 10

// begin makes it ready for one command that fetches.
func (h *hearing) begin() {
	h.line.Reset()
	h.rest = child.Tail{Limit: keptWords}
}

// end is what was said besides counted things.
func (h *hearing) end() string {
	h.take(h.line.String())
	h.line.Reset()
	return h.rest.Text()
}

// Write implements io.Writer, for one command at a time.
func (h *hearing) Write(p []byte) (int, error) {
	for _, b := range p {
		if h.line.WriteByte(b); b == '\n' || h.line.Len() > keptWords {
			h.take(h.line.String())
			h.line.Reset()
		}
	}
	return len(p), nil
}

// fetchedOnly is the output that realise.sh wants of a derivation, which none has.
const fetchedOnly = "'deploy-ssh-fetches'"

var copying = regexp.MustCompile(`^copying path '[^']*' from '([^']*)'`)

func (h *hearing) take(line string) {
	trimmed := strings.TrimSpace(line)
	switch from := copying.FindStringSubmatch(line); {
	case from != nil:
		if h.own == "" || !strings.HasPrefix(from[1], h.own) {
			h.caches.Add(1)
		}
	case strings.HasPrefix(trimmed, "waiting for "):
		h.waits("the host's store is " + h.redact(trimmed))
	case strings.HasPrefix(line, "  /nix/store/"), strings.HasPrefix(line, "these "), strings.HasPrefix(line, "this "),
		strings.HasPrefix(line, "don't know how to build these"), strings.Contains(line, fetchedOnly):
		// What it is about to do, and that a derivation was fetched.
	default:
		_, _ = h.rest.Write([]byte(line))
	}
}
