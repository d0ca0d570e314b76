package deploy

import (
	"context"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/activate"
	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Transport is the open way to one node: the hooks by which the body of a deploy
// differs from one kind of host to another.
type Transport interface {
	// Run runs a remote command as root; see [ssh.Conn.Run] for its errors.
	Run(context.Context, ssh.Script) error
	// FreshRun is Run with a login of its own.
	FreshRun(context.Context, ssh.Script) error
	// Reopen makes the connection again after it was lost.
	Reopen(context.Context) error
	// Copy brings a closure to the host, which it does not have.
	Copy(ctx context.Context, host facts.Host, job closure.Job) (closure.Sent, error)
	// SwitchLimit is the run time limit of an activation; 0 means none.
	SwitchLimit(facts.Host) time.Duration
	// Finalize makes the boot entry.
	Finalize(context.Context, activate.Run, activate.Sink) (activate.Outcome, error)
	// Revert takes a boot entry back whose making failed.
	Revert(context.Context) error
	// Hint is what to do next after a failure where this kind of host has better
	// advice than the verdict's row; else empty.
	Hint(verdict.Verdict, facts.Host) string
	// Close ends the connection.
	Close()
}

// sshTransport is the transport of hosts that are reached over SSH.
type sshTransport struct {
	*ssh.Conn
	copier closure.Engine
	// limit is the operator's limit for an activation; 0 when none was given.
	limit time.Duration
}

func (t sshTransport) Copy(ctx context.Context, host facts.Host, job closure.Job) (closure.Sent, error) {
	job.Daemon = host.Tools["nix-daemon"]
	return t.copier.Copy(ctx, t.Conn, job)
}

// SwitchLimit is none on a machine, where a person can look, and one in a
// container, whose manager may stop it half-way otherwise (FR-008).
func (t sshTransport) SwitchLimit(host facts.Host) time.Duration {
	if t.limit == 0 && host.Container != "" {
		return ContainerSwitchLimit
	}
	return t.limit
}

func (t sshTransport) Finalize(ctx context.Context, r activate.Run, sink activate.Sink) (activate.Outcome, error) {
	return activate.Supervise(ctx, t.Conn, r, sink)
}

// Revert does nothing: a boot entry that was made is never taken back (FR-010).
func (sshTransport) Revert(context.Context) error { return nil }

func (sshTransport) Hint(v verdict.Verdict, host facts.Host) string {
	if v == verdict.Unfinalized && host.Container != "" {
		return "This host is a container (" + host.Container + "), whose boot its manager decides: deploy it with tf-incus."
	}
	return ""
}
