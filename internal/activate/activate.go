// Package activate runs switch-to-configuration on a host under supervision.
//
// The switch is a transient unit of the host's systemd and not tied to any
// session: it has its output in a file, and systemd records its end in another.
// The connection only follows the file. So a line that drops, an sshd that is
// restarted by the switch or a deployer that is killed change nothing of the
// switch, and its true result can be read afterwards.
package activate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
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
	// DryActivate tells what an activation would do.
	DryActivate Action = "dry-activate"
)

// Run describes one supervised run.
type Run struct {
	// ID names the deploy of one node; both actions of it share the ID.
	ID     string
	Action Action
	// Toplevel is the wanted system's store path.
	Toplevel string
	// BootID and Running are the host's boot id and running system when the run was
	// decided on. On another boot nothing is started; see startScript for the other.
	BootID, Running string
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
	// FreshBaseline says that the host is as its last good deploy left it, so its
	// failed units of now are those that had failed before.
	FreshBaseline bool
	// NoCheck skips the host's pre-switch checks.
	NoCheck bool
	// Generation is the generation of the system profile that leads to Toplevel
	// and that Boot goes to; 0 lets it make one.
	Generation int
	// Confirm is how long after the end of a test run the host waits for
	// [Confirm] before it goes back to Old by itself; 0 means that it stays.
	Confirm time.Duration
	// Old is the system that ran before; used with Confirm alone.
	Old string
	// Attach says that the run has been started by another deploy and is only followed.
	Attach bool
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

func (r Run) backUnit() string { return "deploy-ssh-" + r.ID + "-" + back + ".service" }

// confirmed reports whether the host goes back when nobody confirms.
func (r Run) confirmed() bool { return r.Action == Test && r.Confirm > 0 && r.Old != "" }

// Sink receives what a run says while it goes on.
type Sink struct {
	// Log receives the run's own output, every byte once.
	Log io.Writer
	// Waiting, if not nil, is told every half minute which jobs of the host's
	// systemd are still running, each as "start of UNIT", and for how long the
	// run has been followed.
	Waiting func(jobs []string, since time.Duration)
}

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
// the old one is lost.
//
// The error is nil when the run's end and the host after it were seen. Otherwise
// it says why not, and the outcome has what was seen until then; the run itself
// may go on.
func Supervise(ctx context.Context, conn Conn, r Run, sink Sink) (Outcome, error) {
	if r.Attach {
		return follow(ctx, conn, r, r.unit(), sink, func(offset int64, _ bool) string { return attachScript(r, offset) })
	}
	return follow(ctx, conn, r, r.unit(), sink, func(offset int64, again bool) string { return startScript(r, offset, again) })
}

// Return follows the host on its way back to the old system, after a switch
// that no fresh login confirmed.
func Return(ctx context.Context, conn Conn, r Run, sink Sink) (Outcome, error) {
	return follow(ctx, conn, r, r.backUnit(), sink, func(offset int64, _ bool) string { return backScript(r, offset) })
}

// follow runs a script and, whenever the connection is lost, again over a new one,
// from the byte of the log where the last one stopped.
func follow(ctx context.Context, conn Conn, r Run, unit string, sink Sink, text func(offset int64, again bool) string) (Outcome, error) {
	answer := newAnswer(unit, sink)
	script := ssh.Script{
		Doing:   fmt.Sprintf("switching (%s)", r.Action),
		Text:    text(0, false),
		Output:  answer,
		Timeout: -1, // the keepalive notices a dead connection; the switch has its own limits
	}
	err := conn.Run(ctx, script)
	reconnects := 0
	var since time.Time // when contact was lost; it counts as made again once the host says something
	var heard int64
	for answer.resumable(err) && ctx.Err() == nil {
		now := time.Now()
		if reconnects == 0 || answer.received > heard {
			since = now
		}
		heard = answer.received
		left := r.Window - now.Sub(since)
		if left <= 0 {
			return answer.outcome(reconnects), fmt.Errorf("no answer over a new connection within %v: %w", r.Window, err)
		}
		if reconnects > 0 {
			pause(ctx)
		}
		if err := reopen(ctx, conn, left); err != nil {
			return answer.outcome(reconnects), err
		}
		reconnects++
		answer.restart()
		script.Text = text(answer.logged, true)
		err = conn.Run(ctx, script)
	}
	if err == nil {
		err = answer.finish()
	}
	return answer.outcome(reconnects), err
}

// pause keeps a host that lets in but ends every session at once from being hammered.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// FreshLogin is a way to the host that shares nothing with the open connection.
type FreshLogin interface {
	FreshRun(context.Context, ssh.Script) error
}

// Confirm tries a fresh login, twice, and confirms the switch over it, where the
// host waits for that. good says that the activation went well. back is true when
// the host has already decided to go back.
func Confirm(ctx context.Context, login FreshLogin, good bool) (back bool, err error) {
	script := ssh.Script{Doing: "trying a fresh login", Text: confirmScript(good)}
	for try := range 2 {
		if try > 0 {
			pause(ctx)
			pause(ctx)
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		var out bytes.Buffer
		script.Output = &out
		if err = login.FreshRun(ctx, script); err == nil {
			return bytes.HasPrefix(out.Bytes(), []byte("back")), nil
		}
	}
	return false, err
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
		pause(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("connecting again: %w: %w", context.Cause(ctx), err)
		}
	}
}
