package activate

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// answer reads what the follow script sends: lines of "name value", each
// announced piece of the log as raw bytes, and last an observation.
type answer struct {
	sink   Sink
	words  wordScanner
	logged int64 // bytes of the log received whole, over all connections
	// received counts all bytes, over all connections.
	received int64
	// begun is whether the run was seen to be on the host.
	begun   bool
	raw     int64 // bytes of the announced piece still to come
	line    []byte
	observe bool
	// waiting is since when, in seconds, jobs are listed; -1 while none are.
	waiting int
	jobs    []string
	seen    bytes.Buffer

	sw           verdict.Switch
	profileError string
	host         facts.Host
	parsed       bool
}

func newAnswer(unit string, sink Sink) *answer {
	return &answer{sink: sink, waiting: -1, sw: verdict.Switch{Unit: unit}}
}

// restart forgets what a lost connection had half sent. A piece of the log that
// was cut in the middle has been passed on as far as it came.
func (a *answer) restart() {
	a.raw, a.line, a.observe, a.waiting = 0, nil, false, -1
	a.seen.Reset()
	// What a session said of starting the run, the next one knows better.
	a.sw.NotScheduled, a.profileError = "", ""
}

// maxLine bounds one line of the answer that is no log, maxSeen an observation.
const (
	maxLine = 1 << 20
	maxSeen = 16 << 20
)

// resumable reports whether the run can be gone on with after an error: the
// connection was lost or, once the run is on the host, something on the way to it
// hiccups, such as wrappers that the activation is just replacing.
func (a *answer) resumable(err error) bool {
	var way *ssh.Error
	return errors.As(err, &way) && (way.Kind == ssh.Lost || a.begun)
}

func (a *answer) Write(p []byte) (int, error) {
	n := len(p)
	a.received += int64(n)
	for len(p) > 0 {
		if a.raw > 0 {
			piece := p[:min(int64(len(p)), a.raw)]
			p = p[len(piece):]
			a.raw -= int64(len(piece))
			a.logged += int64(len(piece))
			a.words.Write(piece)
			if _, err := a.sink.Log.Write(piece); err != nil {
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
		if a.seen.Len() > maxSeen {
			return fmt.Errorf("reading the host's answer: an observation of more than %d MiB", maxSeen>>20)
		}
		a.seen.WriteString(line + "\n")
		return nil
	}
	name, value, _ := strings.Cut(line, " ")
	if name != "job" {
		a.tellWaiting()
	}
	switch name {
	case "waiting":
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("reading the host's answer: waiting since %q", value)
		}
		a.waiting = n
	case "job":
		kind, unit, _ := strings.Cut(value, " ")
		if a.waiting < 0 {
			a.sw.Jobs = append(a.sw.Jobs, kind+" of "+unit)
			break
		}
		a.jobs = append(a.jobs, kind+" of "+unit)
	case "log":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("reading the host's answer: log length %q", value)
		}
		a.raw = n
	case "unit":
		a.begun = true
	case "alive":
	case "superseded":
		a.sw.Superseded = true
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
		a.sw.Gone = true
		a.sw.Journal = strings.TrimSpace(value)
	case "observation":
		a.observe = true
	default:
		return fmt.Errorf("reading the host's answer: unexpected line %q", line)
	}
	return nil
}

// tellWaiting passes on the jobs listed since the last line of another kind.
func (a *answer) tellWaiting() {
	if a.waiting >= 0 && a.sink.Waiting != nil {
		a.sink.Waiting(a.jobs, time.Duration(a.waiting)*time.Second)
	}
	a.waiting, a.jobs = -1, nil
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
	if a.sw.Ended && (a.sw.ServiceResult == "" || a.sw.ExitCode == "") {
		// A record of the end that says nothing, as on a full /run, is none.
		a.sw.Ended, a.sw.Gone = false, true
	}
	return Outcome{Switch: a.sw, ProfileError: a.profileError, Host: a.host, Seen: a.parsed, Reconnects: reconnects}
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
