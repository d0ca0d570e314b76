package closure

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nix-community/go-nix/pkg/narinfo"

	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

//go:embed survey.sh
var surveyScript string

// ErrNotBuilt says that a system is not whole in the deployer's store.
var ErrNotBuilt = errors.New("it is not built")

// Surveyor is what a survey needs of the way to a host.
type Surveyor interface {
	Run(context.Context, ssh.Script) error
}

// Survey is how a host stands to a closure that it is to get. Nothing was sent.
type Survey struct {
	// After are the closure's paths, Before those of the closure that runs; Before is
	// nil where the host could not tell.
	Before, After []string
	// BeforeBytes and AfterBytes are the sizes of both, unpacked; BeforeBytes is 0
	// where Before is nil.
	BeforeBytes, AfterBytes int64
	// Label is the running system's nixos-version; empty when it has none.
	Label string
	// Newest is the number of the host's newest generation, NewestSystem where it
	// leads; 0 and "" when there is none.
	Newest       int
	NewestSystem string

	// Missing is how many paths the host lacks, MissingBytes their size, unpacked.
	Missing      int
	MissingBytes int64
	// CachesAsked is whether the host's own caches were asked for these, and all that
	// answer did in time; InCaches is how many of them they have.
	CachesAsked   bool
	InCaches      int
	InCachesBytes int64

	// StoreFree and BootFree are bytes; -1 where there is nothing to say of it, see
	// [Engine.Copy]. BootNeeds is what of the closure's kernel and initrd /boot lacks.
	StoreFree, BootFree int64
	BootNeeds           int64
	// Refusal is why a copy would be refused; empty when nothing is known against it.
	Refusal string
	// NeedsReboot are the parts of the closure that would run only after a reboot.
	NeedsReboot []string
	// Notes are true things of the way a copy would go.
	Notes []string
}

// Survey asks a host, in one round trip, what of a closure it lacks and how the
// closure differs from the one that runs. It only reads. The error is [ErrNotBuilt]
// when the closure is not in the deployer's store.
func (e Engine) Survey(ctx context.Context, h Surveyor, toplevel string) (Survey, error) {
	if _, err := os.Stat(toplevel); err != nil {
		return Survey{}, ErrNotBuilt
	}
	paths, err := e.query(ctx, toplevel)
	if err != nil {
		return Survey{}, err
	}
	files := bootFiles(toplevel)
	var answer bytes.Buffer
	text := e.questions(paths, files, false) + privateCache + inCaches + "preflight() (\n" + preflightScript + "\n)\n" + surveyScript
	if err := h.Run(ctx, ssh.Script{Doing: "asking the host what would change", Text: text, Output: &answer}); err != nil {
		return Survey{}, err
	}
	lacks, said, err := parseSurvey(answer.Bytes())
	if err != nil {
		return Survey{}, err
	}
	s := compare(paths, lacks, said)
	s.BootNeeds = lacks.bootNeeds(files)
	s.Refusal = lacks.refuses(paths, s.MissingBytes, files)
	s.NeedsReboot = changedParts(said.booted, bootParts(toplevel))
	return s, nil
}

// surveyed is what survey.sh says, as it stands there.
type surveyed struct {
	runningRead          bool
	gone, came           []string
	goneSizes            []int64
	label                string
	newest               int
	newestSystem         string
	booted               map[string]string // part → where it leads, or what it says
	cachesAsked, tooSlow bool
	inCache              []string
}

// parseSurvey reads the answers of preflight.sh and survey.sh. One that is cut short
// is an error.
func parseSurvey(output []byte) (preflight, surveyed, error) {
	const end = "preflight complete\n"
	at := bytes.Index(output, []byte(end))
	if at > 0 && output[at-1] != '\n' {
		at = -1
	}
	if at < 0 {
		return preflight{}, surveyed{}, fmt.Errorf("reading what would change: the answer ends early, after %d bytes", len(output))
	}
	lacks, err := parsePreflight(output[:at+len(end)])
	if err != nil {
		return preflight{}, surveyed{}, err
	}
	s := surveyed{booted: map[string]string{}}
	complete := false
	lines := bufio.NewScanner(bytes.NewReader(output[at+len(end):]))
	lines.Buffer(nil, 1<<20)
	bad := func(format string, args ...any) (preflight, surveyed, error) {
		return preflight{}, surveyed{}, fmt.Errorf("reading what would change: "+format, args...)
	}
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "gone", "came", "in-cache":
			if err := validPath(value); err != nil {
				return bad("%s: %w", name, err)
			}
			list := map[string]*[]string{"gone": &s.gone, "came": &s.came, "in-cache": &s.inCache}[name]
			*list = append(*list, value)
		case "gone-size":
			size, err := strconv.ParseInt(value, 10, 64)
			if err != nil || size < 0 || size > 1<<52 {
				return bad("%s %q is no size", name, value)
			}
			s.goneSizes = append(s.goneSizes, size)
		case "running-read":
			s.runningRead = true
		case "label":
			s.label = value
		case "newest":
			number, path, _ := strings.Cut(value, " ")
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 {
				return bad("the newest generation %q", value)
			}
			s.newest, s.newestSystem = n, path
		case "booted-kernel", "booted-initrd", "booted-kernel-modules", "booted-kernel-params":
			s.booted[strings.TrimPrefix(name, "booted-")] = strings.TrimSpace(value)
		case "caches-asked":
			s.cachesAsked = true
		case "caches-slow":
			s.tooSlow = true
		case "surveyed":
			complete = true
		default:
			return bad("unexpected line %q", lines.Text())
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		return bad("%w", err)
	case !complete:
		return bad("the answer ends early, after %d bytes", len(output))
	case len(s.goneSizes) != len(s.gone):
		return bad("%d sizes of %d paths", len(s.goneSizes), len(s.gone))
	}
	return lacks, s, nil
}

// compare makes a survey of the closure here and of what the host said.
func compare(paths []narinfo.NarInfo, lacks preflight, said surveyed) Survey {
	s := Survey{
		Label: said.label, Newest: said.newest, NewestSystem: said.newestSystem,
		StoreFree: lacks.storeFree, BootFree: lacks.bootFree, CachesAsked: said.cachesAsked,
	}
	set := func(list []string) map[string]bool {
		in := map[string]bool{}
		for _, path := range list {
			in[path] = true
		}
		return in
	}
	came, missing, cached := set(said.came), set(lacks.missing), set(said.inCache)
	for _, p := range paths {
		size := int64(p.NarSize)
		s.After, s.AfterBytes = append(s.After, p.StorePath), s.AfterBytes+size
		if said.runningRead && !came[p.StorePath] {
			s.Before, s.BeforeBytes = append(s.Before, p.StorePath), s.BeforeBytes+size
		}
		if missing[p.StorePath] {
			s.Missing, s.MissingBytes = s.Missing+1, s.MissingBytes+size
			if cached[p.StorePath] {
				s.InCaches, s.InCachesBytes = s.InCaches+1, s.InCachesBytes+size
			}
		}
	}
	if said.runningRead {
		s.Before = append(s.Before, said.gone...)
		for _, size := range said.goneSizes {
			s.BeforeBytes += size
		}
	}
	for _, cache := range lacks.dead {
		s.Notes = append(s.Notes, "a substituter of the host does not answer: "+cache)
	}
	if said.tooSlow {
		s.Notes = append(s.Notes, "the host's substituters did not tell within 20 s what they have")
	}
	return s
}

// bootParts are the parts of a system that run only after a boot: where they lead
// and, of the kernel's parameters, what they are.
func bootParts(toplevel string) map[string]string {
	parts := map[string]string{}
	for _, name := range []string{"kernel", "initrd", "kernel-modules"} {
		if path, err := filepath.EvalSymlinks(filepath.Join(toplevel, name)); err == nil {
			parts[name] = path
		}
	}
	if text, err := os.ReadFile(filepath.Join(toplevel, "kernel-params")); err == nil {
		parts["kernel-params"] = strings.TrimSpace(string(text))
	}
	return parts
}

// changedParts are those that are others than what booted. A system without a kernel,
// as in a container, has none.
func changedParts(booted, wanted map[string]string) []string {
	var changed []string
	if booted["kernel"] == "" || wanted["kernel"] == "" {
		return nil
	}
	for _, name := range []string{"kernel", "initrd", "kernel-modules", "kernel-params"} {
		if booted[name] != wanted[name] {
			changed = append(changed, name)
		}
	}
	return changed
}

// refuses says why a copy of what is missing, size bytes unpacked, would not begin;
// empty when nothing is known against it.
func (p preflight) refuses(paths []narinfo.NarInfo, size int64, files []bootFile) string {
	if p.readOnly != "" {
		return readOnlyStore(p.readOnly)
	}
	if why := p.tooSmall(size, files); why != "" || p.untrusted == "" {
		return why
	}
	missing := map[string]bool{}
	for _, path := range p.missing {
		missing[path] = true
	}
	for _, info := range paths {
		if missing[info.StorePath] && !signedBy(info, p.trustedKeys) {
			return unsigned(p.untrusted, info.StorePath).Error()
		}
	}
	return ""
}

func readOnlyStore(mountedAt string) string {
	return fmt.Sprintf("the host's store is on a read-only file system (mounted at %s)", mountedAt)
}
