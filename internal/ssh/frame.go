package ssh

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
)

// A script's output is framed by a random marker, and its exit status is
// reported inside the frame: what a login shell's start-up files print can't
// be taken for an answer, and an answer that was cut short can't for a whole one.

// prelude makes the tools of a NixOS host reachable whatever PATH the login
// shell has; a host whose PATH is empty works too.
const prelude = `PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/run/wrappers/bin:${PATH:-/usr/bin:/bin}
export PATH
LC_ALL=C
export LC_ALL
`

func newMarker() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return "deploy-ssh-" + hex.EncodeToString(b)
}

// wrap makes of a script what is sent to sh's standard input. The braces make
// sh read all of it before it runs any, so a script that was cut short on its
// way does nothing. The script itself runs in a subshell without our input, where
// redirections don't keep it.
func wrap(marker, script, redirections string) string {
	return "{\n" + prelude +
		"printf '\\n%s begin\\n' " + marker + "\n" +
		"(\n" + script + "\n) " + redirections + "</dev/null\n" +
		"printf '%s end %s\\n' " + marker + " \"$?\"\n" +
		"exit 0\n}\n"
}

// maxNoise bounds what is kept of output before the frame.
const maxNoise = 4096

// frame reads framed output and passes the body on as it comes.
type frame struct {
	begin, end []byte
	body       io.Writer
	onBegin    func() // called when the frame begins; may be nil
	onEnd      func() // called when it ends; may be nil
	reused     bool   // the session has run a script before, so what precedes is no login's

	begun, ended bool
	status       int
	noise        []byte // before the frame
	pending      []byte
	failed       error // of body
}

func newFrame(marker string, body io.Writer) *frame {
	return &frame{
		begin: []byte("\n" + marker + " begin\n"),
		// Not at the start of a line: its end would be held back until more comes.
		end:  []byte(marker + " end "),
		body: body,
	}
}

func (f *frame) Write(p []byte) (int, error) {
	if f.ended {
		return len(p), nil // a shell's farewell
	}
	f.pending = append(f.pending, p...)
	if !f.begun {
		i := bytes.Index(f.pending, f.begin)
		if i < 0 {
			keep := min(len(f.pending), len(f.begin)-1)
			f.addNoise(f.pending[:len(f.pending)-keep])
			f.pending = f.pending[len(f.pending)-keep:]
			return len(p), nil
		}
		f.addNoise(f.pending[:i])
		f.pending = f.pending[i+len(f.begin):]
		f.begun = true
		if f.onBegin != nil {
			f.onBegin()
		}
	}
	if i := bytes.Index(f.pending, f.end); i >= 0 {
		rest := f.pending[i+len(f.end):]
		line, _, whole := bytes.Cut(rest, []byte("\n"))
		if !whole && len(rest) < 16 {
			f.pass(f.pending[:i])
			f.pending = f.pending[i:]
			return len(p), f.failed
		}
		status, err := strconv.Atoi(string(line))
		if err == nil {
			f.pass(f.pending[:i])
			f.ended, f.status, f.pending = true, status, nil
			if f.onEnd != nil {
				f.onEnd()
			}
			return len(p), f.failed
		}
	}
	// What could be the start of the end stays; all before it goes on.
	keep := partial(f.pending, f.end)
	f.pass(f.pending[:len(f.pending)-keep])
	f.pending = f.pending[len(f.pending)-keep:]
	return len(p), f.failed
}

// partial is the length of the longest end of b that mark begins with.
func partial(b, mark []byte) int {
	for n := min(len(b), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(b, mark[:n]) {
			return n
		}
	}
	return 0
}

func (f *frame) pass(b []byte) {
	if len(b) > 0 && f.failed == nil {
		_, f.failed = f.body.Write(b)
	}
}

func (f *frame) addNoise(b []byte) {
	if room := maxNoise - len(f.noise); room > 0 {
		f.noise = append(f.noise, b[:min(room, len(b))]...)
	}
}

// marker is the text that the frame is made of.
func (f *frame) marker() string {
	return strings.TrimSuffix(strings.TrimPrefix(string(f.begin), "\n"), " begin\n")
}

// before is what was said before the frame, or at all where there was none.
func (f *frame) before() string {
	if f.begun {
		return string(f.noise)
	}
	return string(f.noise) + string(f.pending)
}

// noisyLine is the first line of noise before the frame; empty when there was none.
func (f *frame) noisyLine() string {
	if f.reused {
		return ""
	}
	for line := range strings.Lines(f.before()) {
		if trimmed := strings.Trim(line, "\n"); strings.TrimSpace(trimmed) != "" {
			return strings.ToValidUTF8(trimmed, "�")
		}
	}
	return ""
}
