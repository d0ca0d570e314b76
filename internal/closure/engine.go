package closure

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nix-community/go-nix/pkg/narinfo"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// DefaultTimeout bounds the copy of one closure.
const DefaultTimeout = 6 * time.Hour

// attempts is how often what is missing is asked for before a copy fails. What has
// arrived is not sent again.
const attempts = 3

//go:embed realise.sh
var realiseScript string

// Engine brings closures to hosts.
//
// The host fetches what it lacks itself: from its own substituters and, where they
// don't have a path, from a binary cache of the closure that the deployer serves it
// over the open connection. Where that can't be, `nix copy` does it.
type Engine struct {
	// Runner runs Nix on the deployer.
	Runner child.Runner
	// Options are settings of Nix that the operator gave, each a name and a value.
	Options [][2]string
	// Timeout bounds one copy; 0 means [DefaultTimeout].
	Timeout time.Duration
	// Compress is how what is sent is packed; the zero value is not at all.
	Compress Compression
	// NoSubstitute keeps the host's own substituters out of it.
	NoSubstitute bool
	// Via, if not nil, is a binary cache of the operator's that hosts fetch from; only
	// where that fails are the other ways taken.
	Via *Via
	// NoCheck lets a copy begin although space on the host seems short.
	NoCheck bool
}

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
	// By is what moved the paths: "cache", "via cache" (the operator's) or "nix copy";
	// empty when none was missing.
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
		return fmt.Sprintf("%d paths, %s unpacked, fetched by the host from caches", s.FromCaches, bytesText(s.MissingBytes))
	case s.By != byCache:
		return fmt.Sprintf("%d paths, %s unpacked, by %s, because %s", s.Missing, bytesText(s.MissingBytes), s.By, s.Why)
	}
	text := fmt.Sprintf("%d paths, %s unpacked, sent as %s", s.FromHere, bytesText(s.NarBytes), bytesText(s.WireBytes))
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
	c, err := newCache(paths, e.Compress)
	if err != nil {
		return Sent{}, err
	}
	// The port is asked for while the host looks what it lacks: a round trip less.
	opened := make(chan *door, 1)
	go func() { opened <- open(ctx, h, c) }()
	host, err := e.ask(ctx, h, paths, files)
	way := <-opened
	defer way.close()
	if err != nil {
		return Sent{}, err
	}
	missing := map[string]bool{}
	for _, path := range host.missing {
		missing[path] = true
	}
	sent := Sent{Paths: len(paths), Missing: len(host.missing), Notes: nil}
	lacking := ""
	for _, p := range paths {
		if missing[p.StorePath] {
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

// waysOut is what helps where a store takes signed paths only.
const waysOut = `
The host's store takes unsigned paths from trusted users only. One of these helps:
  - become root: log in as root, or set elevate = "sudo" (or "doas") for the node
  - trust the login user: add it to nix.settings.trusted-users on the host
  - sign what is built: secret-key-files on the deployer, and the public key in nix.settings.trusted-public-keys on the host`

// unsigned is the error of a user from whom the store takes signed paths only.
// Nix's own words come first, as it would say them after all had been sent.
func unsigned(user, path string) error {
	return fmt.Errorf("error: cannot add path '%s' because it lacks a signature by a trusted key\n"+
		"(nothing was sent: the user %s is not in the host's trusted-users)%s", path, user, waysOut)
}

// door is where a cache is reached: a socket here and, unless that was refused, a
// port of the host that leads to it.
type door struct {
	socket  string
	port    int
	took    time.Duration // how long the host took to open the port: a round trip and a little
	refused error
	closers []func()
}

func open(ctx context.Context, h Host, c *cache) *door {
	d := &door{socket: filepath.Join(h.Dir(), "cache")}
	_ = os.Remove(d.socket) // of an earlier copy over this connection
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", d.socket)
	if err != nil {
		d.refused = fmt.Errorf("making a socket: %w", err)
		return d
	}
	d.closers = append(d.closers, c.serve(ctx, listener))
	d.forward(ctx, h)
	return d
}

// forward asks the host for a port, a new one after the connection was lost.
func (d *door) forward(ctx context.Context, h Host) {
	var end func()
	asked := time.Now()
	defer func() { d.took = time.Since(asked) }()
	if d.port, end, d.refused = h.Forward(ctx, d.socket); d.refused == nil {
		d.closers = append(d.closers, end)
	}
}

// close ends it all, the port first.
func (d *door) close() {
	for _, c := range slices.Backward(d.closers) {
		c()
	}
}

// serve has the host fetch what it lacks, from the cache here and from its own.
// fallback, if not empty, is why that can't be, and then nothing was sent.
func (e Engine) serve(ctx context.Context, h Host, job Job, c *cache, way *door, host preflight, sent *Sent) (fallback string, err error) {
	meter := newMeter(c, *sent, job.Progress)
	defer meter.stop()
	for sent.Tries = 1; ; sent.Tries++ {
		var lost *ssh.Error
		switch {
		case way.refused == nil:
			err = e.realise(ctx, h, job, c, way, host)
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

// maxArguments bounds the length of the paths on the host's command line, where
// Linux allows two million bytes.
const maxArguments = 1_200_000

// realise has the host fetch what it lacks.
func (e Engine) realise(ctx context.Context, h Host, job Job, c *cache, way *door, host preflight) error {
	err := e.fetch(ctx, h, job, host, config(c, way, host.caches), c.redact)
	var refused *refusal
	if errors.As(err, &refused) {
		return signatureHint(refused.said)
	}
	return err
}

// refusal is what a host says that fetched not all.
type refusal struct{ said string }

func (r *refusal) Error() string { return r.said }

// fetch has the host fetch what it lacks from where the settings of Nix in config say.
// redact takes secrets out of what the host says. The error is a [*refusal] when the
// host lacks something still.
func (e Engine) fetch(ctx context.Context, h Host, job Job, host preflight, config string, redact func(string) string) error {
	var text, answer bytes.Buffer
	missing := strings.Join(host.missing, "\n")
	if len(missing) > maxArguments {
		missing = ""
	}
	// The script is standard input on the host: its secrets are in no command line.
	fmt.Fprintf(&text, "toplevel='%s'\nmissing='%s'\nconfig='%s'\n%s", job.Toplevel, missing, config, realiseScript)
	err := h.Run(ctx, ssh.Script{Doing: "fetching the closure on the host", Text: text.String(), Output: &answer, Timeout: -1})
	var failed *ssh.ExitError
	if errors.As(err, &failed) {
		said := redact(errorLines(answer.String() + "\n" + failed.Words))
		if said == "" {
			said = "the host's store says neither why it fetched nothing nor that " + job.Toplevel + " is valid"
		}
		return &refusal{said}
	}
	return err
}

// signatureHint adds what to do to an error about signatures.
func signatureHint(said string) error {
	if aboutSignatures(said) {
		said += waysOut
	}
	return errors.New(said)
}

// config is settings of Nix for the one command that fetches the closure.
func config(c *cache, way *door, caches []string) string {
	own := fmt.Sprintf("http://127.0.0.1:%d/%s", way.port, c.token)
	return fetchConfig(append(slices.Clone(caches), own), []string{c.public.String()}, way.took)
}

// fetchConfig is settings of Nix for one command that fetches a closure from these
// substituters and trusts these keys, too. took is how long the host takes to answer.
func fetchConfig(substituters, keys []string, took time.Duration) string {
	return strings.Join([]string{
		"substituters = " + strings.ReplaceAll(strings.Join(substituters, " "), "'", "%27"),
		"extra-trusted-public-keys = " + strings.Join(keys, " "),
		"substitute = true",
		// A cache that fails in the middle leaves the path to the next one.
		"fallback = true",
		"keep-going = true",
		"builders =",
		// Small paths are all round trip.
		"max-jobs = 64",
		"max-substitution-jobs = 64",
		fmt.Sprint("http-connections = ", connections(took)),
		"connect-timeout = 5",
		// When the line freezes, this command lives on at the host and holds the locks of
		// its paths, for which the next one waits: so it must find out soon. Nix's own
		// limits are five minutes and five attempts.
		"stalled-download-timeout = 30",
		"download-attempts = 2",
	}, "\n")
}

// connections is how many connections the host makes at most. A question takes a round
// trip, and there are hundreds: so the longer that is, the more of them at once. Each one
// open costs both ssh processes CPU time, so no more than that.
func connections(roundTrip time.Duration) int {
	return min(max(int(roundTrip/time.Millisecond)*3/2, 32), 256)
}

// errorLines are what Nix says of why: its errors, the first of each kind.
func errorLines(text string) string {
	const most = 6
	var kept []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if (strings.Contains(line, "error:") || aboutSignatures(line)) && !slices.Contains(kept, line) && len(kept) < most {
			kept = append(kept, line)
		}
	}
	if kept == nil {
		return strings.TrimSpace(text)
	}
	// The missing signature explains what else there is.
	slices.SortStableFunc(kept, func(a, b string) int {
		switch x, y := aboutSignatures(a), aboutSignatures(b); {
		case x && !y:
			return -1
		case y && !x:
			return 1
		}
		return 0
	})
	return strings.Join(kept, "\n")
}

// aboutSignatures recognises Nix's words for a path that nobody trusted has signed:
// of a store that is given one, and of one that fetches it.
func aboutSignatures(line string) bool {
	return strings.Contains(line, "lacks a signature") || strings.Contains(line, "lacks a valid signature") ||
		strings.Contains(line, "not signed by any of the keys")
}
