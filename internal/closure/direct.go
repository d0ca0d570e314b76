package closure

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/nix-community/go-nix/pkg/narinfo"
	"github.com/nix-community/go-nix/pkg/storepath"
	"github.com/nix-community/go-nix/pkg/wire"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

//go:embed direct.sh
var directScript string

// keepScript defines functions for the scripts that bring a closure.
//
//go:embed keep.sh
var keepScript string

// byDirect is the name of this way in [Sent.By].
const byDirect = "direct"

// What goes direct is at most that many paths, of that many bytes unpacked, and comes to
// that many as text: bash reads a script from a pipe byte by byte, a quarter of a megabyte
// in a tenth of a second.
const (
	directPaths = 64
	directBytes = 2 << 20
	directText  = 256 << 10
)

// asksForDirect reports whether a job goes direct if little enough is missing.
func (e Engine) asksForDirect(job Job) bool {
	return e.Via == nil && !strings.HasSuffix(job.Toplevel, ".drv")
}

// goesDirect reports whether what is missing is so little that it is sent in one command,
// and whether it may: the host's own caches have none of it, and the host believes us.
func (e Engine) goesDirect(job Job, host preflight, missing []narinfo.NarInfo) bool {
	size := uint64(0)
	for _, p := range missing {
		size += p.NarSize
	}
	switch {
	case !e.asksForDirect(job), len(missing) > directPaths, size > directBytes:
		return false
	case host.untrusted != "", host.noNix: // without nix it can't tell its caches
		return false
	}
	return len(host.caches) == 0 || host.cachesAsked && len(host.inCaches) == 0
}

// direct sends what a host lacks in one command, where the cache takes a round trip for
// each kind of question. done is false where that can't be; then sent has a note of why,
// or it is too much when packed, and it is the turn of the other ways.
func (e Engine) direct(ctx context.Context, h Host, job Job, way *door, missing []narinfo.NarInfo, sent *Sent) (done bool, err error) {
	giveUp := func(why string) (bool, error) {
		note := "sending all in one command was of no use: " + why
		sent.Notes = append(sent.Notes, note)
		job.Progress(note)
		sent.By, sent.WireBytes, sent.Tries = "", 0, 0
		return false, nil
	}
	p, err := pack(e.root, missing, e.Compress)
	if err != nil {
		return giveUp(err.Error())
	}
	if len(p.text) > directText {
		return false, nil
	}
	text := fmt.Sprintf("toplevel='%s'\nmissing='%s'\nunpack='%s'\nsent='%s'\n%s%s%s", job.Toplevel, p.paths, p.unpack, p.text,
		privateCache, keepScript, directScript)
	// It is told only what the store waits for: nothing else is counted as it goes.
	asking, asked := context.WithCancel(ctx)
	still := counts{here: -1}
	meter := newMeter(func() counts { return still }, *sent, func() string { return heldUp(asking, h) }, job.Progress)
	defer meter.stop()
	defer asked()
	for sent.Tries = 1; ; sent.Tries++ {
		said := child.Tail{Limit: keptWords}
		// Unattended, in the shell that is open: it has all it needs, holds the store's
		// locks for no longer than that takes, and a session of its own costs two round trips.
		err := h.Run(ctx, ssh.Script{Doing: "sending the closure in one command", Text: text, Output: &said, Timeout: -1})
		sent.By = byDirect
		sent.WireBytes += int64(len(p.text))
		var failed *ssh.ExitError
		var lost *ssh.Error
		switch {
		case err == nil:
			sent.FromHere, sent.NarBytes = len(missing), sent.MissingBytes
			return true, nil
		case ctx.Err() != nil:
			return false, err
		case errors.As(err, &failed):
			why := errorLines(said.Text() + "\n" + failed.Words)
			if why == "" {
				why = "the host's store says neither why it took nothing nor that " + job.Toplevel + " is valid"
			}
			return giveUp(why)
		case !errors.As(err, &lost), sent.Tries == attempts:
			return false, err
		}
		job.Progress("trying again: " + err.Error())
		if again := h.Reopen(ctx); again != nil {
			return false, fmt.Errorf("%w; connecting again: %w", err, again)
		}
		way.forward(ctx, h) // for the other way, should it be needed
	}
}

// packed are paths for direct.sh.
type packed struct {
	paths  string // one a line
	text   string // in base64
	unpack string // the command that makes of what that decodes to what the store reads
}

func pack(root string, missing []narinfo.NarInfo, c Compression) (packed, error) {
	missing = referencesFirst(missing)
	var plain, zipped bytes.Buffer
	if err := addToStore(&plain, root, missing); err != nil {
		return packed{}, err
	}
	p := packed{unpack: "cat"}
	for _, m := range missing {
		p.paths += m.StorePath + "\n"
	}
	if c.Level == 0 {
		p.text = base64.StdEncoding.EncodeToString(plain.Bytes())
		return p, nil
	}
	p.unpack = "gzip -dc" // which every host has, where it may lack zstd
	w := gzip.NewWriter(&zipped)
	_, err := plain.WriteTo(w)
	err = errors.Join(err, w.Close())
	p.text = base64.StdEncoding.EncodeToString(zipped.Bytes())
	return p, err
}

// What the receiving end of an ssh:// store reads, `nix-store --serve --write`, see Nix's
// serve-protocol.hh. Version 2.5 is the first whose clients add paths like this.
const (
	serveMagic    = 0x390c9deb
	serveVersion  = 2<<8 | 5
	addToStoreNar = 9
)

// addToStore writes paths of the store under root as a client would that doesn't wait for
// the answers; the paths must stand behind those that they refer to. What is kept there of
// each is all that there is, and its hash is checked: the stream of `nix-store --import` has
// no place for signatures and content addresses, and of its archives nobody checks the hash.
func addToStore(w *bytes.Buffer, root string, paths []narinfo.NarInfo) error {
	numbers(w, serveMagic, serveVersion)
	for _, p := range paths {
		deriver := ""
		if p.Deriver != "" {
			deriver = storepath.StoreDir + "/" + p.Deriver
		}
		numbers(w, addToStoreNar)
		words(w, p.StorePath, deriver, hex.EncodeToString(p.NarHash.Digest()))
		numbers(w, uint64(len(p.References)))
		for _, reference := range p.References {
			words(w, storepath.StoreDir+"/"+reference)
		}
		const now, ultimate = 0, 0 // registered when it arrives, and not built there
		numbers(w, now, p.NarSize, ultimate, uint64(len(p.Signatures)))
		for _, s := range p.Signatures {
			words(w, s.String())
		}
		words(w, p.CA)
		before := w.Len()
		if err := archive(w, root+p.StorePath); err != nil {
			return err
		}
		if n := uint64(w.Len() - before); n != p.NarSize {
			// It would put all that follows out of step.
			return fmt.Errorf("packing %s: its archive has %d bytes, not %d", p.StorePath, n, p.NarSize)
		}
	}
	return nil
}

// numbers and words write Nix's wire format; a buffer takes all.
func numbers(w *bytes.Buffer, numbers ...uint64) {
	for _, n := range numbers {
		_ = wire.WriteUint64(w, n)
	}
}

func words(w *bytes.Buffer, words ...string) {
	for _, word := range words {
		_ = wire.WriteString(w, word)
	}
}

// referencesFirst orders paths so that each stands behind those among them that it refers
// to; otherwise they stay as they are.
func referencesFirst(paths []narinfo.NarInfo) []narinfo.NarInfo {
	at := map[string]int{}
	for i, p := range paths {
		at[strings.TrimPrefix(p.StorePath, storepath.StoreDir+"/")] = i
	}
	var ordered []narinfo.NarInfo
	seen := make([]bool, len(paths))
	var visit func(i int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		for _, reference := range paths[i].References {
			if j, among := at[reference]; among {
				visit(j)
			}
		}
		ordered = append(ordered, paths[i])
	}
	for i := range paths {
		visit(i)
	}
	return ordered
}
