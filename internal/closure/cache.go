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
	"runtime"
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
	token  string
	public signature.PublicKey
	files  map[string]http.HandlerFunc // by the path of the URL

	compress Compression
	narrow   chan struct{}      // one slot for each small NAR that is being packed
	wide     chan *zstd.Encoder // the encoders of large NARs; nil where there is no compression
	small    sync.Pool          // encoders of small NARs

	sent  atomic.Int64 // bytes on the wire, all of HTTP
	nars  atomic.Int64 // bytes of the NARs that were sent whole, unpacked
	paths atomic.Int64 // how many those are

	server http.Server
}

const (
	// smallNar is the size in bytes up to which a NAR is packed in memory before it
	// is sent. So it holds no encoder while the line is slow.
	smallNar = 512 << 10
	// wideEncoders is how many large NARs are packed at once, windowSize what each
	// of their encoders looks back. Together they bound the memory of a copy.
	wideEncoders = 6
	windowSize   = 2 << 20
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
		narrow: make(chan struct{}, runtime.GOMAXPROCS(0)+2),
		wide:   make(chan *zstd.Encoder, wideEncoders),
	}
	for range wideEncoders {
		encoder, err := s.encoder()
		if err != nil {
			return nil, err
		}
		s.wide <- encoder
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
func (s *cache) encoder() (*zstd.Encoder, error) {
	if s.compress.Level == 0 {
		return nil, nil
	}
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(s.compress.Level)),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowSize), zstd.WithLowerEncoderMem(true),
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

// stream packs a path while it is sent.
func (s *cache) stream(ctx context.Context, w http.ResponseWriter, storePath string) error {
	select {
	case encoder := <-s.wide:
		defer func() { s.wide <- encoder }()
		if encoder == nil {
			return archive(w, storePath)
		}
		encoder.Reset(w)
		return errors.Join(archive(encoder, storePath), encoder.Close())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// whole packs a small path and then sends it.
func (s *cache) whole(ctx context.Context, w http.ResponseWriter, storePath string) error {
	select {
	case s.narrow <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	packed, err := s.pack(storePath)
	<-s.narrow
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(packed)))
	_, err = w.Write(packed)
	return err
}

func (s *cache) pack(storePath string) ([]byte, error) {
	var nar bytes.Buffer
	if err := archive(&nar, storePath); err != nil {
		return nil, err
	}
	if s.compress.Level == 0 {
		return nar.Bytes(), nil
	}
	encoder, _ := s.small.Get().(*zstd.Encoder)
	if encoder == nil {
		var err error
		if encoder, err = s.encoder(); err != nil {
			return nil, err
		}
	}
	defer s.small.Put(encoder)
	return encoder.EncodeAll(nar.Bytes(), nil), nil
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
