package closure

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nix-community/go-nix/pkg/narinfo"
	"github.com/nix-community/go-nix/pkg/narinfo/signature"
)

// cache is a binary cache of one closure for one copy, as HTTP.
//
// Whoever reaches it needs the token, which is part of every URL. What it serves is
// signed with a key that was made with it, so nobody else can serve in its place.
// Nothing but the closure can be fetched, for a request is looked up in a table and
// never made into a path.
type cache struct {
	root   string // where the store's files are, before their paths; empty outside of tests
	token  string
	public signature.PublicKey
	files  map[string]http.HandlerFunc // by the path of the URL

	compress    Compression
	own, shared *packers // shared may be nil

	sent  atomic.Int64 // bytes on the wire, all of HTTP
	nars  atomic.Int64 // bytes of the NARs that were sent whole, unpacked
	paths atomic.Int64 // how many paths those are of
	// packed is bytes of NARs as they are read, less what had to be given up.
	packed atomic.Int64

	server http.Server
}

// priority puts this cache behind every other: Nix asks the lowest first, and
// cache.nixos.org has 40.
const priority = 1000

// newCache makes a cache of paths. Nobody can reach it before [cache.serve].
// What it sends is packed with a packer of its own or one of shared, which may be nil.
func newCache(paths []narinfo.NarInfo, c Compression, shared *packers) (*cache, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails, see crypto/rand
	// The name tells an operator who finds it in a store where it is from.
	key, public, err := signature.GenerateKeypair("deploy-ssh-"+hex.EncodeToString(secret[:8]), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a signing key: %w", err)
	}
	s := &cache{
		token: hex.EncodeToString(secret[8:]), public: public, compress: c,
		files: make(map[string]http.HandlerFunc, 2*len(paths)+1),
		own:   newPackers(1), shared: shared,
	}
	s.files[s.path("nix-cache-info")] = text("text/x-nix-cache-info", fmt.Sprintf("StoreDir: /nix/store\nWantMassQuery: 1\nPriority: %d\n", priority))
	for _, p := range paths {
		p.URL, p.Compression = "nar/"+hashPart(p.StorePath)+".nar", "none"
		if c.Level > 0 {
			p.URL, p.Compression = p.URL+".zst", "zstd"
		}
		s.files[s.path(hashPart(p.StorePath)+".narinfo")] = signed(p, key)
		s.files[s.path(p.URL)] = s.nar(p.StorePath, p.NarSize)
	}
	s.server = http.Server{
		Handler:           http.HandlerFunc(s.answer),
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	return s, nil
}

func (s *cache) path(name string) string { return "/" + s.token + "/" + name }

// serve answers requests until stop is called. No request outlives stop.
func (s *cache) serve(ctx context.Context, listener net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.server.BaseContext = func(net.Listener) context.Context { return ctx }
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.server.Serve(counted{listener, &s.sent}) }) // ends at Close
	return func() {
		cancel()
		_ = s.server.Close()
		serving.Wait()
	}
}

func (s *cache) answer(w http.ResponseWriter, r *http.Request) {
	file := s.files[r.URL.Path]
	if file == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	file(w, r)
}

func text(contentType, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(content)) // who went away misses nothing
	}
}

// signed tells of a path, with a signature by key beside those that it has. It is made
// when it is asked for: of a large closure the most never is.
func signed(p narinfo.NarInfo, key signature.SecretKey) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		own, err := key.Sign(rand.Reader, p.Fingerprint())
		if err != nil {
			http.Error(w, fmt.Sprintf("signing %s: %v", p.StorePath, err), http.StatusInternalServerError)
			return
		}
		told := p
		told.Signatures = append(slices.Clone(p.Signatures), own)
		text(told.ContentType(), told.String())(w, r)
	}
}

// nar sends a path of the store. What can't be sent whole ends without an orderly
// end, so that the host can tell.
func (s *cache) nar(storePath string, size uint64) http.HandlerFunc {
	var before atomic.Bool // whether it was sent whole already
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-nix-nar")
		if r.Method == http.MethodHead {
			return
		}
		send := s.stream
		if size <= smallNar {
			send = s.whole
		}
		var read int64
		pack := func(w io.Writer) error { return archive(tally{w, &read, &s.packed}, s.root+storePath) }
		if err := send(r.Context(), w, pack); err != nil {
			s.packed.Add(-read)
			panic(http.ErrAbortHandler)
		}
		s.nars.Add(int64(size))
		if before.Swap(true) {
			s.packed.Add(-read)
		} else {
			s.paths.Add(1)
		}
	}
}

// tally counts what is written, alone and with others.
type tally struct {
	io.Writer
	own   *int64
	total *atomic.Int64
}

func (t tally) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	*t.own += int64(n)
	t.total.Add(int64(n))
	return n, err
}

// emptyFrame is a whole zstd frame of no bytes (RFC 8878, 3.1.1): frames in a row
// unpack to what they have in a row.
var emptyFrame = []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00}

// stream packs a path while it is sent.
func (s *cache) stream(ctx context.Context, w http.ResponseWriter, pack func(io.Writer) error) error {
	if s.compress.Level == 0 {
		return pack(w)
	}
	p, err := take(ctx, s.own.wide, s.shared.orNone().wide, func() error {
		_, err := w.Write(emptyFrame)
		return errors.Join(err, http.NewResponseController(w).Flush())
	})
	if err != nil {
		return err
	}
	defer p.done()
	return p.stream(w, s.compress.Level, pack)
}

// whole packs a small path and then sends it.
func (s *cache) whole(ctx context.Context, w http.ResponseWriter, pack func(io.Writer) error) error {
	p, err := take(ctx, s.own.narrow, s.shared.orNone().narrow, func() error { return nil })
	if err != nil {
		return err
	}
	packed, err := p.whole(s.compress.Level, pack)
	p.done()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(packed)))
	_, err = w.Write(packed)
	return err
}

// redact takes the token out of a text.
func (s *cache) redact(text string) string { return strings.ReplaceAll(text, s.token, "TOKEN") }

// counted counts what its connections send.
type counted struct {
	net.Listener
	sent *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{c, l.sent}, nil
}

type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}
