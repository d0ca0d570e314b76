package closure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// smallNar is the size in bytes up to which a NAR is packed in memory before it
	// is sent. So it holds no packer while the line is slow.
	smallNar = 256 << 10
	// windowSize is how many bytes the packer of a large NAR looks back.
	windowSize = 4 << 20
	// sharedPackers is how many NARs of each kind are packed at once beside one for each
	// copy. Together they bound the memory of a run, however large what is copied is.
	sharedPackers = 3
	// bestLevel is from where on a packer takes 40 MiB, so that none are shared.
	bestLevel = 10
)

// packers are what NARs are packed with: narrow ones for small NARs and wide ones.
// Each copy has one of either kind that no slow host can keep from it, and there are
// some that all copies of a run share.
type packers struct{ narrow, wide chan *packer }

func newPackers(n int) *packers {
	return &packers{fill(n, smallNar), fill(n, windowSize)}
}

func fill(n, window int) chan *packer {
	c := make(chan *packer, n)
	for range n {
		c <- &packer{home: c, window: window}
	}
	return c
}

// newShared makes the packers that the copies of a run share.
func newShared(c Compression) *packers {
	if c.Level >= bestLevel {
		return newPackers(0)
	}
	return newPackers(sharedPackers)
}

// orNone makes packers of nil, of which none is ever free.
func (p *packers) orNone() *packers {
	if p == nil {
		return &packers{}
	}
	return p
}

// patience is how often a request that waits for an encoder gets an empty frame, for
// a host gives up a download that stalls for minutes (Nix's stalled-download-timeout), and
// on a slow line the wait can be longer.
const patience = 5 * time.Second

// take waits for a packer of either place. While it waits it calls still now and then,
// whose error ends it.
func take(ctx context.Context, own, shared chan *packer, still func() error) (*packer, error) {
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for {
		select {
		case p := <-own:
			return p, nil
		case p := <-shared:
			return p, nil
		case <-tick.C:
			if err := still(); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// packer packs one NAR at a time.
type packer struct {
	home    chan *packer
	window  int
	level   int
	encoder *zstd.Encoder // of level; nil until the first use
	nar     bytes.Buffer
}

// done gives it back.
func (p *packer) done() { p.home <- p }

// ready makes the encoder of a level.
func (p *packer) ready(level int) (err error) {
	if p.encoder != nil && p.level == level {
		return nil
	}
	p.level = level
	p.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(p.window), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false)) // Nix checks the hash of the NAR
	if err != nil {
		return fmt.Errorf("preparing to compress: %w", err)
	}
	return nil
}

// stream packs what archive writes, while it goes on to w.
func (p *packer) stream(w io.Writer, level int, archive func(io.Writer) error) error {
	if err := p.ready(level); err != nil {
		return err
	}
	p.encoder.Reset(w)
	err := archive(p.encoder)
	if closed := p.encoder.Close(); err == nil {
		err = closed
	}
	p.encoder.Reset(nil) // keeps nothing of w
	return err
}

// whole returns the packed NAR, which stays when the packer goes on. Level 0 is unpacked.
func (p *packer) whole(level int, archive func(io.Writer) error) ([]byte, error) {
	p.nar.Reset()
	if err := archive(&p.nar); err != nil {
		return nil, err
	}
	if level == 0 {
		return bytes.Clone(p.nar.Bytes()), nil
	}
	if err := p.ready(level); err != nil {
		return nil, err
	}
	return p.encoder.EncodeAll(p.nar.Bytes(), nil), nil
}
