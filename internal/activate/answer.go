package activate

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// answer reads what the follow script sends: lines of "name value", each
// announced piece of the log as raw bytes, and last an observation.
type answer struct {
	log     io.Writer
	words   wordScanner
	logged  int64 // bytes of the log received whole, over all connections
	raw     int64 // bytes of the announced piece still to come
	line    []byte
	observe bool
	seen    bytes.Buffer

	sw           verdict.Switch
	profileError string
	host         facts.Host
	parsed       bool
}

func newAnswer(unit string, log io.Writer) *answer {
	return &answer{log: log, sw: verdict.Switch{Unit: unit}}
}

// restart forgets what a lost connection had half sent. A piece of the log that
// was cut in the middle has been passed on as far as it came.
func (a *answer) restart() {
	a.raw, a.line, a.observe = 0, nil, false
	a.seen.Reset()
}

// maxLine bounds one line of the answer that is no log.
const maxLine = 1 << 20

func (a *answer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if a.raw > 0 {
			piece := p[:min(int64(len(p)), a.raw)]
			p = p[len(piece):]
			a.raw -= int64(len(piece))
			a.logged += int64(len(piece))
			a.words.Write(piece)
			if _, err := a.log.Write(piece); err != nil {
				return 0, err
			}
			continue
		}
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			a.line = append(a.line, p...)
			if len(a.line) > maxLine {
				return 0, fmt.Errorf("reading the host's answer: a line of more than %d bytes", maxLine)
			}
			break
		}
		line := string(append(a.line, p[:i]...))
		a.line, p = nil, p[i+1:]
		if err := a.take(line); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (a *answer) take(line string) error {
	if a.observe {
		a.seen.WriteString(line + "\n")
		return nil
	}
	name, value, _ := strings.Cut(line, " ")
	switch name {
	case "log":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("reading the host's answer: log length %q", value)
		}
		a.raw = n
	case "unit", "alive":
	case "not-scheduled":
		a.sw.NotScheduled = or(strings.TrimSpace(value), "systemd-run ended without a word")
	case "profile-error":
		a.profileError = strings.TrimSpace(value)
	case "ended":
		a.sw.Ended = true
	case "service-result":
		a.sw.ServiceResult = value
	case "exit-code":
		a.sw.ExitCode = value
	case "exit-status":
		a.sw.ExitStatus = value
	case "tries":
		a.sw.Tries, _ = strconv.Atoi(value)
	case "locked":
		a.sw.LockHeld, a.sw.Holder = true, value
	case "still-running":
		a.sw.StillRunning = true
	case "gone":
		// The unit is no more and left no result: Ended stays false.
	case "observation":
		a.observe = true
	default:
		return fmt.Errorf("reading the host's answer: unexpected line %q", line)
	}
	return nil
}

// finish reads the observation, once the script has ended well.
func (a *answer) finish() error {
	host, err := facts.Parse(a.seen.Bytes())
	if err != nil {
		return err
	}
	a.host, a.parsed = host, true
	return nil
}

func (a *answer) outcome(reconnects int) Outcome {
	a.words.flush()
	a.sw.Words = a.words.words
	return Outcome{Switch: a.sw, ProfileError: a.profileError, Host: a.host, Seen: a.parsed, Reconnects: reconnects}
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
