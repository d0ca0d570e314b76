package closure

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
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

	compress Compression
	narrow   chan *packer       // what small NARs are packed with
	wide     chan *zstd.Encoder // what large NARs are; nil where there is no compression

	sent  atomic.Int64 // bytes on the wire, all of HTTP
	nars  atomic.Int64 // bytes of the NARs that were sent whole, unpacked
	paths atomic.Int64 // how many those are

	server http.Server
}

const (
	// smallNar is the size in bytes up to which a NAR is packed in memory before it
	// is sent. So it holds no encoder while the line is slow.
	smallNar = 256 << 10
	// packers is how many NARs of each kind are packed at once, and windowSize what
	// the encoder of a large one looks back. Together they bound the memory of a copy,
	// a fifth of which is that of one encoder.
	packers    = 4
	windowSize = 4 << 20
	// bestLevel is from where on an encoder takes 40 MiB, so that there is one of a kind.
	bestLevel = 10
	// priority puts this cache behind every other: Nix asks the lowest first, and
	// cache.nixos.org has 40.
	priority = 1000
)

// newCache makes a cache of paths. Nobody can reach it before [cache.serve].
func newCache(paths []narinfo.NarInfo, c Compression) (*cache, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails, see crypto/rand
	// The name tells an operator who finds it in a store where it is from.
	key, public, err := signature.GenerateKeypair("deploy-ssh-"+hex.EncodeToString(secret[:8]), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a signing key: %w", err)
	}
	s := &cache{
		token: hex.EncodeToString(secret[8:]), public: public, compress: c,
		files:  make(map[string]http.HandlerFunc, 2*len(paths)+1),
		narrow: make(chan *packer, packers),
		wide:   make(chan *zstd.Encoder, packers),
	}
	for range packers {
		wide, err := encoder(c, windowSize)
		if err != nil {
			return nil, fmt.Errorf("preparing to compress: %w", err)
		}
		narrow, err := encoder(c, smallNar)
		if err != nil {
			return nil, fmt.Errorf("preparing to compress: %w", err)
		}
		s.wide <- wide
		s.narrow <- &packer{encoder: narrow}
		if c.Level >= bestLevel {
			break
		}
	}
	s.files[s.path("nix-cache-info")] = text("text/x-nix-cache-info", fmt.Sprintf("StoreDir: /nix/store\nWantMassQuery: 1\nPriority: %d\n", priority))
	for _, p := range paths {
		p.URL, p.Compression = "nar/"+hashPart(p.StorePath)+".nar", "none"
		if c.Level > 0 {
			p.URL, p.Compression = p.URL+".zst", "zstd"
		}
		own, err := key.Sign(rand.Reader, p.Fingerprint())
		if err != nil {
			return nil, fmt.Errorf("signing %s: %w", p.StorePath, err)
		}
		p.Signatures = append(p.Signatures[:len(p.Signatures):len(p.Signatures)], own)
		s.files[s.path(hashPart(p.StorePath)+".narinfo")] = text(p.ContentType(), p.String())
		s.files[s.path(p.URL)] = s.nar(p.StorePath, p.NarSize)
	}
	s.server = http.Server{
		Handler:           http.HandlerFunc(s.answer),
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	return s, nil
}

// encoder makes an encoder. It is nil where nothing is compressed.
func encoder(c Compression, window int) (*zstd.Encoder, error) {
	if c.Level == 0 {
		return nil, nil
	}
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(c.Level)),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false)) // Nix checks the hash of the NAR
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

// nar sends a path of the store. What can't be sent whole ends without an orderly
// end, so that the host can tell.
func (s *cache) nar(storePath string, size uint64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-nix-nar")
		if r.Method == http.MethodHead {
			return
		}
		send := s.stream
		if size <= smallNar {
			send = s.whole
		}
		if err := send(r.Context(), w, storePath); err != nil {
			panic(http.ErrAbortHandler)
		}
		s.paths.Add(1)
		s.nars.Add(int64(size))
	}
}

// emptyFrame is a whole zstd frame of no bytes (RFC 8878, 3.1.1): frames in a row
// unpack to what they have in a row.
var emptyFrame = []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00}

// patience is how often a request that waits for an encoder gets an empty frame, for
// a host gives up a download that stalls. On a slow line the wait can be minutes.
const patience = 5 * time.Second

// stream packs a path while it is sent.
func (s *cache) stream(ctx context.Context, w http.ResponseWriter, storePath string) error {
	if s.compress.Level == 0 {
		return archive(w, s.root+storePath)
	}
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for {
		select {
		case encoder := <-s.wide:
			defer func() { s.wide <- encoder }()
			encoder.Reset(w)
			return errors.Join(archive(encoder, s.root+storePath), encoder.Close())
		case <-tick.C:
			if _, err := w.Write(emptyFrame); err != nil {
				return err
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// whole packs a small path and then sends it.
func (s *cache) whole(ctx context.Context, w http.ResponseWriter, storePath string) error {
	var packed []byte
	select {
	case p := <-s.narrow:
		var err error
		packed, err = p.pack(s.root + storePath)
		s.narrow <- p
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(packed)))
	_, err := w.Write(packed)
	return err
}

// packer packs NARs in memory, one at a time.
type packer struct {
	encoder *zstd.Encoder // nil where there is no compression
	nar     bytes.Buffer
}

// pack returns the packed NAR, which stays when the packer goes on.
func (p *packer) pack(path string) ([]byte, error) {
	p.nar.Reset()
	if err := archive(&p.nar, path); err != nil {
		return nil, err
	}
	if p.encoder == nil {
		return bytes.Clone(p.nar.Bytes()), nil
	}
	return p.encoder.EncodeAll(p.nar.Bytes(), nil), nil
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
