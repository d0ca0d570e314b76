package closure

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nix-community/go-nix/pkg/narinfo"

	"github.com/deploy-ssh/deploy-ssh/internal/bytesize"
	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// DefaultTimeout bounds the copy of one closure.
const DefaultTimeout = 6 * time.Hour

// attempts is how often what is missing is asked for before a copy fails. What has
// arrived is not sent again.
const attempts = 3

// Engine brings closures to hosts.
//
// The host fetches what it lacks itself: from its own substituters and, where they
// don't have a path, from a binary cache of the closure that the deployer serves it
// over the open connection. Little that no substituter has is sent in one command instead.
// Where neither can be, `nix copy` does it.
type Engine struct {
	// Runner runs Nix on the deployer.
	Runner child.Runner
	// Options are settings of Nix that the operator gave, each a name and a value.
	Options [][2]string
	// Timeout bounds one copy; 0 means [DefaultTimeout].
	Timeout time.Duration
	// Compress is how what is sent is packed; the zero value is not at all. Use [New].
	Compress Compression
	// NoSubstitute keeps the host's own substituters out of it.
	NoSubstitute bool
	// Via, if not nil, is a binary cache of the operator's that hosts fetch from; only
	// where that fails are the other ways taken.
	Via *Via
	// NoCheck lets a copy begin although space on the host seems short.
	NoCheck bool

	shared *packers // by all copies; nil when each has but its own
	root   string   // where the store's files are, before their paths; empty outside of tests
}

// New makes an engine whose copies, which may go on side by side, share what they pack with.
func New(c Compression) Engine { return Engine{Compress: c, shared: newShared(c)} }

// Host is the open way to a host, see [ssh.Conn].
type Host interface {
	Run(context.Context, ssh.Script) error
	Reopen(context.Context) error
	Forward(ctx context.Context, socket string) (port int, end func(), err error)
	NixStore(daemon string) (url string, env []string)
	Dir() string
	Compressed(context.Context) (*ssh.Conn, error)
}

// Job is one closure to bring to one host.
type Job struct {
	// Toplevel is the path whose closure it is: a system, or the derivation of one that
	// the host builds itself.
	Toplevel string
	// Daemon is the path of nix-daemon on the host; empty leaves it to the PATH.
	Daemon string
	// Boots is whether the system will be made the one that boots, so that its kernel
	// must have room.
	Boots bool
	// Progress is told how it goes, a line at a time; it must not be nil.
	Progress func(string)
}

// Sent is what a copy came to.
type Sent struct {
	// By is what moved the paths: "cache", "direct" (in one command), "via cache" (the
	// operator's) or "nix copy"; empty when none was missing.
	By string
	// Why is why it was nix copy; else empty.
	Why string
	// Paths is how many the closure has, Missing how many of them the host lacked;
	// FromHere and FromCaches are where those came from. With nix copy only Paths and
	// Missing are known.
	Paths, Missing, FromHere, FromCaches int
	// MissingBytes is the size of what was missing, NarBytes of what was sent from
	// here, both unpacked; WireBytes is what went over the line for that.
	MissingBytes, NarBytes, WireBytes int64
	// Tries is how often it was begun.
	Tries int
	// Notes are true things of the way it went.
	Notes []string
}

// String is a line for people.
func (s Sent) String() string {
	switch {
	case s.Missing == 0:
		return "no path was missing"
	case s.By == byVia:
		return fmt.Sprintf("%d paths, %s unpacked, fetched by the host from caches", s.FromCaches, bytesize.Text(s.MissingBytes))
	case s.By == byNix:
		return fmt.Sprintf("%d paths, %s unpacked, by %s, because %s", s.Missing, bytesize.Text(s.MissingBytes), s.By, s.Why)
	}
	text := fmt.Sprintf("%d paths, %s unpacked, sent as %s", s.FromHere, bytesize.Text(s.NarBytes), bytesize.Text(s.WireBytes))
	if s.FromCaches > 0 {
		text += fmt.Sprintf("; %d paths from the host's own caches", s.FromCaches)
	}
	return text
}

const (
	byCache = "cache"
	byNix   = "nix copy"
)

// Copy brings a closure to a host and proves that it is there. The error is an
// [*ssh.Error] when the way to the host was lost.
func (e Engine) Copy(ctx context.Context, h Host, job Job) (Sent, error) {
	timeout := e.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done within %v", timeout))
	defer cancel()

	paths, err := e.query(ctx, job.Toplevel)
	if err != nil {
		return Sent{}, err
	}
	var files []bootFile
	if job.Boots {
		files = bootFiles(job.Toplevel)
	}
	c, err := newCache(paths, e.Compress, e.shared)
	if err != nil {
		return Sent{}, err
	}
	// The port is asked for while the host looks what it lacks: a round trip less.
	opened := make(chan *door, 1)
	go func() { opened <- open(ctx, h, c) }()
	host, err := e.ask(ctx, h, job, paths, files)
	way := <-opened
	defer way.close()
	if err != nil {
		return Sent{}, err
	}
	lacks := map[string]bool{}
	for _, path := range host.missing {
		lacks[path] = true
	}
	sent := Sent{Paths: len(paths), Missing: len(host.missing), Notes: nil}
	lacking := ""
	var missing []narinfo.NarInfo
	for _, p := range paths {
		if lacks[p.StorePath] {
			missing = append(missing, p)
			sent.MissingBytes += int64(p.NarSize)
			if lacking == "" && !signedBy(p, host.trustedKeys) {
				lacking = p.StorePath
			}
		}
	}
	for _, cache := range host.dead {
		sent.Notes = append(sent.Notes, "a substituter of the host does not answer and was left out: "+cache)
	}
	if host.readOnly != "" {
		return sent, errors.New(readOnlyStore(host.readOnly))
	}
	if why := host.tooSmall(sent.MissingBytes, files); why != "" && !e.NoCheck {
		return sent, errors.New(why)
	}
	if sent.Missing == 0 {
		return sent, nil
	}
	if e.Via != nil {
		if done, err := e.via(ctx, h, job, way, host, &sent); done || err != nil {
			return sent, err
		}
	}
	if e.goesDirect(job, host, missing) {
		if done, err := e.direct(ctx, h, job, way, missing, &sent); done || err != nil {
			return sent, err
		}
	}
	switch {
	case host.untrusted != "" && lacking != "":
		return sent, unsigned(host.untrusted, lacking)
	case host.untrusted != "":
		sent.Why = "the host's store does not trust the user " + host.untrusted
	case host.noNix:
		sent.Why = "the host has no nix command"
	default:
		fallback, err := e.serve(ctx, h, job, c, way, host, &sent)
		if fallback == "" {
			return sent, err
		}
		sent.Why = fallback
	}
	sent.By, sent.Tries = byNix, 1
	job.Progress("copying with nix copy, because " + sent.Why)
	return sent, e.nixCopy(ctx, h, job, host.untrusted == "")
}

// signedBy reports whether a path has a signature by one of the named keys, or
// needs none because its name tells its content.
func signedBy(p narinfo.NarInfo, keys []string) bool {
	for _, s := range p.Signatures {
		if slices.Contains(keys, s.Name) {
			return true
		}
	}
	return p.CA != ""
}

// serve has the host fetch what it lacks, from the cache here and from its own.
// fallback, if not empty, is why that can't be, and then nothing was sent.
func (e Engine) serve(ctx context.Context, h Host, job Job, c *cache, way *door, host preflight, sent *Sent) (fallback string, err error) {
	heard := &hearing{redact: c.redact, waits: job.Progress}
	asking, done := context.WithCancel(ctx)
	meter := newMeter(func() counts { return count(c, heard) }, *sent, func() string { return heldUp(asking, h) }, job.Progress)
	defer meter.stop()
	defer done()
	for sent.Tries = 1; ; sent.Tries++ {
		var lost *ssh.Error
		switch {
		case way.refused == nil:
			err = e.realise(ctx, h, job, c, way, host, heard)
		case sent.Tries == 1 && !errors.As(way.refused, &lost):
			return way.refused.Error(), nil
		default:
			err = way.refused
		}
		sent.By = byCache
		sent.FromHere, sent.NarBytes, sent.WireBytes = int(c.paths.Load()), c.nars.Load(), c.sent.Load()
		if err == nil {
			sent.FromCaches = max(0, sent.Missing-sent.FromHere)
			return "", nil
		}
		if ctx.Err() != nil || sent.Tries == attempts {
			return "", err
		}
		job.Progress("trying again: " + err.Error())
		if errors.As(err, &lost) {
			if again := h.Reopen(ctx); again != nil {
				return "", fmt.Errorf("%w; connecting again: %w", err, again)
			}
			way.forward(ctx, h)
		}
	}
}
