package closure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// Via is a binary cache of the operator's by which closures reach the hosts: each is
// pushed there once, and every host fetches what it lacks from there. So the deployer
// sends a closure once, however many hosts want it.
//
// One Via serves all copies of a run; they push one after the other, since two at once
// would send what their closures share twice.
type Via struct {
	// To is where closures are pushed to; From, if not zero, is where the hosts fetch
	// them, where that is another address.
	To, From CacheURL
	// Push, if not empty, is a command that gets a toplevel as its last argument and
	// pushes the closure, in place of nix copy. To is where hosts fetch it then.
	Push []string
	// Keys are public keys that the hosts trust for the one command that fetches. What
	// the cache has must be signed by one of them or by one that the host trusts itself.
	Keys []string

	// Store is where the closures are, as NIX_REMOTE says it; empty means this
	// machine's store. NixConfig is the operator's NIX_CONFIG, to which a push adds.
	Store, NixConfig string

	turn   chan struct{} // held by who pushes
	pushed map[string]bool
	failed error // of a push; there is none after it in this run
}

// Ready makes a Via ready for use; it must be called once, before the first copy.
func (v *Via) Ready() *Via {
	v.turn, v.pushed = make(chan struct{}, 1), map[string]bool{}
	return v
}

// String is the cache for people, without secrets.
func (v *Via) String() string { return v.To.String() }

// from is where hosts fetch.
func (v *Via) from() CacheURL {
	if v.From.IsZero() {
		return v.To.forReaders()
	}
	return v.From
}

func (v *Via) redact(text string) string { return v.From.Redact(v.To.Redact(text)) }

// byVia is the name of this way in [Sent.By].
const byVia = "via cache"

// via brings what a host lacks there by the operator's cache. done is false where that
// can't be; then sent has a note of why, and it is the turn of the engine's own ways.
func (e Engine) via(ctx context.Context, h Host, job Job, way *door, host preflight, sent *Sent) (done bool, err error) {
	giveUp := func(why error) (bool, error) {
		said := e.Via.redact(why.Error())
		if aboutSignatures(said) {
			said += " (--via-cache-key has the hosts trust that cache's key)"
		}
		note := fmt.Sprintf("%v was of no use: %s; sending from here", e.Via, said)
		sent.Notes = append(sent.Notes, note)
		job.Progress(note)
		return false, nil
	}
	if err := e.push(ctx, job); ctx.Err() != nil {
		return false, context.Cause(ctx)
	} else if err != nil {
		return giveUp(err)
	}
	job.Progress(fmt.Sprintf("the host fetches %d paths from %v", sent.Missing, e.Via.from()))
	for sent.Tries = 1; ; sent.Tries++ {
		err := e.fetch(ctx, h, job, host, e.Via.config(host, way.took), &hearing{redact: e.Via.redact, waits: job.Progress})
		var lost *ssh.Error
		switch {
		case err == nil:
			sent.By, sent.FromCaches = byVia, sent.Missing
			return true, nil
		case ctx.Err() != nil:
			return false, err
		case !errors.As(err, &lost):
			return giveUp(err)
		case sent.Tries == attempts:
			return false, err
		}
		job.Progress("trying again: " + err.Error())
		if again := h.Reopen(ctx); again != nil {
			return false, fmt.Errorf("%w; connecting again: %w", err, again)
		}
		way.forward(ctx, h) // for the engine's own way, should it be needed
	}
}

// push pushes a closure, unless this run has done so.
func (e Engine) push(ctx context.Context, job Job) error {
	v := e.Via
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-v.turn }()
	if v.failed != nil || v.pushed[job.Toplevel] {
		return v.failed
	}
	progress := &pushProgress{to: v.To.String(), tell: job.Progress}
	c := child.Command{Subject: "pushing to " + v.To.String(), Stderr: progress}
	if len(v.Push) > 0 {
		c.Name, c.Args = v.Push[0], append(slices.Clone(v.Push[1:]), job.Toplevel)
	} else {
		// The cache is named in the environment, for its address may have a password,
		// and every user of the machine can read arguments. What is written to is the
		// default store then, and "auto" is that of this machine.
		c.Name = "nix"
		c.Args = append([]string{"--extra-experimental-features", "nix-command"}, e.options()...)
		c.Args = append(c.Args, "copy", "--from", cmp.Or(v.Store, "auto"))
		c.Args = append(append(c.Args, installable(job.Toplevel)...), job.Toplevel)
		c.Env = []string{"NIX_CONFIG=" + v.NixConfig + "\n" + v.To.pushConfig(e.Compress)}
	}
	job.Progress("pushing the closure to " + v.To.String())
	_, err := e.Runner.Run(ctx, c)
	var failed *child.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &failed) && failed.Cause == nil && failed.Stderr != "":
		v.failed = errors.New(failed.Subject + ": " + v.redact(errorLines(failed.Stderr)))
	case err != nil:
		v.failed = errors.New(v.redact(err.Error()))
	default:
		v.pushed[job.Toplevel] = true
	}
	return v.failed
}

// config is settings of Nix for the one command that fetches the closure. Of a user
// whom the store does not trust it takes only substituters that it knows already.
func (v *Via) config(host preflight, took time.Duration) string {
	substituters := append(slices.Clone(host.caches), v.from().text)
	if host.untrusted != "" {
		return "substituters = " + strings.Join(substituters, " ") + "\nconnect-timeout = 5"
	}
	// That a path is not in the cache may be remembered from before the push.
	return fetchConfig(substituters, v.Keys, took) + "\nnarinfo-cache-negative-ttl = 0"
}

// pushProgress reads from what Nix says how far a push is, and tells it.
type pushProgress struct {
	to         string
	tell       func(string)
	rest       string // of a line without an end
	paths, all int
	told       time.Time
}

func (p *pushProgress) Write(said []byte) (int, error) {
	lines := strings.Split(p.rest+string(said), "\n")
	p.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		p.line(line)
	}
	return len(said), nil
}

func (p *pushProgress) line(text string) {
	var all int
	if _, err := fmt.Sscanf(text, "copying %d paths", &all); err == nil {
		p.all = all
	}
	if !strings.HasPrefix(text, "copying path '") {
		return
	}
	p.paths++
	if time.Since(p.told) >= interval {
		p.told = time.Now()
		p.tell(fmt.Sprintf("%d of %d paths pushed to %s", p.paths, max(p.all, p.paths), p.to))
	}
}
