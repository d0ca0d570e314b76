// Package activate runs switch-to-configuration on a host under supervision.
//
// The switch is a transient unit of the host's systemd and not tied to any
// session: it has its output in a file, and systemd records its end in another.
// The connection only follows the file. So a line that drops, an sshd that is
// restarted by the switch or a deployer that is killed change nothing of the
// switch, and its true result can be read afterwards.
package activate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Action is what switch-to-configuration is asked to do.
type Action string

const (
	// Test activates the system without a boot entry.
	Test Action = "test"
	// Boot makes the boot entry without an activation. The profile is set first.
	Boot Action = "boot"
)

// Run describes one supervised run.
type Run struct {
	// ID names the deploy of one node; both actions of it share the ID.
	ID     string
	Action Action
	// Toplevel is the wanted system's store path.
	Toplevel string
	// Attempts is how often the lock is tried, Interval apart.
	Attempts int
	Interval time.Duration
	// Limit is systemd's RuntimeMaxSec for the run; 0 means none.
	Limit time.Duration
	// Deadline is how long the run is followed; 0 means to its end.
	// A run that goes on after it is left alone.
	Deadline time.Duration
	// Settle is how long after a good end the host is looked at.
	Settle time.Duration
	// Window is how long after a lost connection new ones are tried.
	Window time.Duration
}

// NewID returns a new deploy's ID; it can stand in paths and unit names.
func NewID(now time.Time) string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return now.UTC().Format("20060102T150405") + "-" + hex.EncodeToString(b)
}

func (r Run) unit() string { return "deploy-ssh-" + r.ID + "-" + string(r.Action) + ".service" }

// Outcome is what was seen of a run and of the host after it.
type Outcome struct {
	Switch verdict.Switch
	// ProfileError is why the system profile could not be set; empty when it was
	// or wasn't asked for.
	ProfileError string
	// Host is the host after the run; meaningless unless Seen.
	Host facts.Host
	// Seen is whether the host was looked at after the run.
	Seen bool
	// Reconnects counts the connections that were made again meanwhile.
	Reconnects int
}

// Conn is what a run needs of a connection to the host.
type Conn interface {
	Run(context.Context, ssh.Script) error
	Reopen(context.Context) error
}

// Supervise starts a run and follows it to its end, over new connections when
// the old one is lost. log receives the run's own output, every byte once.
//
// The error is nil when the run's end and the host after it were seen. Otherwise
// it says why not, and the outcome has what was seen until then; the run itself
// may go on.
func Supervise(ctx context.Context, conn Conn, r Run, log io.Writer) (Outcome, error) {
	answer := newAnswer(r.unit(), log)
	script := ssh.Script{
		Doing:   fmt.Sprintf("switching (%s)", r.Action),
		Text:    startScript(r),
		Output:  answer,
		Timeout: -1, // the keepalive notices a dead connection; the switch has its own limits
	}
	err := conn.Run(ctx, script)
	reconnects := 0
	for lost(err) && ctx.Err() == nil {
		if err := reopen(ctx, conn, r.Window); err != nil {
			return answer.outcome(reconnects), err
		}
		reconnects++
		answer.restart()
		script.Text = followScript(r, answer.logged)
		err = conn.Run(ctx, script)
	}
	if err == nil {
		err = answer.finish()
	}
	return answer.outcome(reconnects), err
}

// Tidy removes the records of earlier deploys from the host after a good one.
func Tidy(ctx context.Context, conn Conn, id string) error {
	return conn.Run(ctx, ssh.Script{Doing: "removing earlier runs' records", Text: tidyScript(id)})
}

func lost(err error) bool {
	var e *ssh.Error
	return errors.As(err, &e) && e.Kind == ssh.Lost
}

// reopen tries to connect again until the window has passed. A host key or
// login that is refused now is no reason to stop: the host may be on its way up.
func reopen(ctx context.Context, conn Conn, window time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, window, fmt.Errorf("no new connection within %v", window))
	defer cancel()
	for {
		err := conn.Reopen(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("connecting again: %w: %w", context.Cause(ctx), err)
		case <-time.After(time.Second):
		}
	}
}
