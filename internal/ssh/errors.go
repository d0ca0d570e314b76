package ssh

import (
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/hostkeys"
)

// Kind tells what stands between the deployer and an answer.
type Kind int

const (
	// Unreachable: no connection was made.
	Unreachable Kind = iota
	// HostKeyRefused: the host showed a key that is not trusted; no login was tried.
	HostKeyRefused
	// LoginRefused: the host let the user not in.
	LoginRefused
	// ElevationRefused: the login works, but becoming root does not.
	ElevationRefused
	// Noise: the login works, but something else than our script talks on its output.
	Noise
	// Lost: the connection was open and is no more, or went silent.
	Lost
)

// Error is a failure of the way to a host, as opposed to one of a command on it.
type Error struct {
	Kind Kind
	// Doing says what was being done, such as "connecting to db".
	Doing string
	// Words are ssh's, or the noisy line.
	Words string
	// Cause is set when it was no word of ssh's that ended it, such as a deadline.
	Cause error

	// unheard is whether the host said nothing at all in answer to a script.
	unheard bool
}

func (e *Error) Error() string {
	switch {
	case e.Cause != nil && e.Words != "":
		return fmt.Sprintf("%s: %v: %s", e.Doing, e.Cause, e.Words)
	case e.Cause != nil:
		return fmt.Sprintf("%s: %v", e.Doing, e.Cause)
	}
	return fmt.Sprintf("%s: %s", e.Doing, e.Words)
}

func (e *Error) Unwrap() error { return e.Cause }

// ExitError is a script that ran to its end on the host and reported a status.
type ExitError struct {
	Doing  string
	Status int
	// Words is what the script left on standard error.
	Words string
}

func (e *ExitError) Error() string {
	if e.Words != "" {
		return fmt.Sprintf("%s: %s", e.Doing, e.Words)
	}
	return fmt.Sprintf("%s: exit status %d", e.Doing, e.Status)
}

// classify reads why no connection came about out of ssh's own words, the only
// place where they decide anything: before the host's first answer there is
// nothing else. The texts are those of sshconnect.c and sshconnect2.c.
func classify(words string) Kind {
	for _, text := range []string{
		"Host key verification failed",
		"REMOTE HOST IDENTIFICATION HAS CHANGED",
		"No host key is known for",
		"REVOKED HOST KEY DETECTED",
	} {
		if strings.Contains(words, text) {
			return HostKeyRefused
		}
	}
	for _, text := range []string{
		"Permission denied (",
		"Too many authentication failures",
		"no supported authentication methods",
		"No supported authentication methods",
	} {
		if strings.Contains(words, text) {
			return LoginRefused
		}
	}
	return Unreachable
}

// essence leaves out of ssh's words the lines that explain no failure.
func essence(words string) string {
	var kept []string
	for line := range strings.Lines(words) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "Warning: Permanently added") || hostkeys.IsShownKey(line) {
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}
