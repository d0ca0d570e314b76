package closure

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nix-community/go-nix/pkg/narinfo"

	"github.com/deploy-ssh/deploy-ssh/internal/bytesize"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

//go:embed preflight.sh
var preflightScript string

// privateCache defines a function for the scripts that ask or fetch.
//
//go:embed scratch.sh
var privateCache string

// inCaches defines a function for the scripts that ask the host's own caches.
//
//go:embed incaches.sh
var inCaches string

// preflight is what a host says before anything is sent.
type preflight struct {
	missing []string // paths of the closure that aren't valid there
	// storeFree and bootFree are bytes; -1 where there is nothing to say of it:
	// /boot may be part of the store's file system or hold no kernels.
	storeFree, bootFree int64
	// bootHas are the hash parts of files that /boot has already.
	bootHas []string
	// readOnly is the mount point of a store on a read-only file system, of which
	// nothing else is said then; else empty.
	readOnly string
	// untrusted is the user's name when the store takes unsigned paths from root
	// alone; trustedKeys are then the names of the keys it trusts.
	untrusted   string
	trustedKeys []string
	noNix       bool // the host has no nix command
	// caches are the host's substituters that answer, dead the others, with why.
	caches, dead []string
	// cachesAsked is whether caches told what they have of the missing paths, which they
	// are asked when that is little; inCaches is what they have.
	cachesAsked bool
	inCaches    []string
}

// ask asks the host all that at once.
func (e Engine) ask(ctx context.Context, h Host, job Job, paths []narinfo.NarInfo, bootFiles []bootFile) (preflight, error) {
	var answer bytes.Buffer
	text := e.questions(paths, bootFiles, e.asksForDirect(job)) + privateCache + inCaches + preflightScript
	if err := h.Run(ctx, ssh.Script{Doing: "asking the host what it lacks", Text: text, Output: &answer}); err != nil {
		return preflight{}, err
	}
	return parsePreflight(answer.Bytes())
}

// questions are the shell variables that preflight.sh asks by. With direct the caches are
// asked what they have of the missing paths, if these are few and small.
func (e Engine) questions(paths []narinfo.NarInfo, bootFiles []bootFile, direct bool) string {
	var text strings.Builder
	few, large := 0, []string(nil)
	text.WriteString("paths='")
	for _, p := range paths {
		text.WriteString(p.StorePath + "\n")
		if direct && p.NarSize > directBytes {
			large = append(large, hashPart(p.StorePath))
		}
	}
	if direct {
		few = directPaths
	}
	caches := "yes"
	if e.NoSubstitute {
		caches = "no"
	}
	var hashes []string
	for _, f := range bootFiles {
		hashes = append(hashes, f.hash)
	}
	fmt.Fprintf(&text, "'\ncaches=%s boot_files='%s' few=%d large='%s'\n", caches, strings.Join(hashes, " "), few, strings.Join(large, " "))
	return text.String()
}

// parsePreflight reads the answer of preflight.sh. One that is cut short is an
// error: what it leaves out must not pass for "nothing is missing".
func parsePreflight(output []byte) (preflight, error) {
	p := preflight{storeFree: -1, bootFree: -1}
	complete := false
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "missing", "in-cache":
			if err := validPath(value); err != nil {
				return preflight{}, fmt.Errorf("reading what the host lacks: %w", err)
			}
			list := map[string]*[]string{"missing": &p.missing, "in-cache": &p.inCaches}[name]
			*list = append(*list, value)
		case "store-free", "boot-free":
			blocks, err := strconv.ParseInt(value, 10, 64)
			if err != nil || blocks < 0 || blocks > 1<<52 {
				return preflight{}, fmt.Errorf("reading what the host lacks: %s %q is no size", name, value)
			}
			if name == "store-free" {
				p.storeFree = blocks << 10
			} else {
				p.bootFree = blocks << 10
			}
		case "boot-has":
			p.bootHas = append(p.bootHas, value)
		case "read-only":
			p.readOnly = value
		case "untrusted":
			p.untrusted = value
		case "trusted-key":
			p.trustedKeys = append(p.trustedKeys, value)
		case "no-nix":
			p.noNix = true
		case "cache":
			p.caches = append(p.caches, value)
		case "dead-cache":
			address, why, _ := strings.Cut(value, " ")
			p.dead = append(p.dead, strings.TrimSuffix(shown(address)+": "+why, ": "))
		case "caches-asked":
			p.cachesAsked = true
		case "caches-slow":
		case "preflight":
			complete = true
		default:
			return preflight{}, fmt.Errorf("reading what the host lacks: unexpected line %q", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		return preflight{}, fmt.Errorf("reading what the host lacks: %w", err)
	}
	if !complete {
		return preflight{}, fmt.Errorf("reading what the host lacks: it ends early, after %d bytes", len(output))
	}
	return p, nil
}

// shown is a substituter's address without the password that it may have.
func shown(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return "a substituter"
}

// bootFile is a file that the boot loader's script copies to /boot.
type bootFile struct {
	hash string // the part of its store path that is in its name there
	size int64
}

// bootFiles are those of a toplevel. One that can't be read is left out: a container has none.
func bootFiles(toplevel string) []bootFile {
	var files []bootFile
	for _, name := range []string{"kernel", "initrd"} {
		path, err := filepath.EvalSymlinks(filepath.Join(toplevel, name))
		if err != nil {
			continue
		}
		info, err := os.Stat(path)
		rest, ok := strings.CutPrefix(path, "/nix/store/")
		if err == nil && ok {
			hash, _, _ := strings.Cut(rest, "-")
			files = append(files, bootFile{hash, info.Size()})
		}
	}
	return files
}

// tooSmall says what has no room on a host; empty when all has, or when the host said
// nothing of it. size is how many bytes will be unpacked there.
func (p preflight) tooSmall(size int64, files []bootFile) string {
	if p.storeFree >= 0 && size > p.storeFree {
		return fmt.Sprintf("the host's store has %s free, and what is missing takes %s unpacked", bytesize.Text(p.storeFree), bytesize.Text(size))
	}
	if needed := p.bootNeeds(files); p.bootFree >= 0 && needed > p.bootFree {
		return fmt.Sprintf("the host's /boot has %s free, and the kernel and initrd of this system take %s", bytesize.Text(p.bootFree), bytesize.Text(needed))
	}
	return ""
}

// bootNeeds is how many bytes of files /boot lacks.
func (p preflight) bootNeeds(files []bootFile) int64 {
	needed := int64(0)
	for _, f := range files {
		if !slices.Contains(p.bootHas, f.hash) {
			needed += f.size
		}
	}
	return needed
}
