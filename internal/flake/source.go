package flake

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is what Nix says of a flake's source: `nix flake metadata --json`.
type source struct {
	// document is the whole answer. It names the content of the flake and of all
	// its inputs, and what else of them an evaluation can see, such as revisions.
	document []byte
	// trees are the local files and folders that the flake and its inputs are read
	// from, outside the store, where they can change.
	trees []string
	// repositories are those of the trees that Git knows the files of.
	repositories []string
	// committed are the local repositories of inputs that have a revision. Newer versions of
	// Nix (seen with 2.34) read an input in its tree all the same, where it was not locked before.
	committed []string
	// flakes are where flake.nix is: in the copy of the source in the store, and in a
	// local source.
	flakes []string
	// store is the directory of the store.
	store string
}

// lockedRef is a flake reference that Nix has locked.
type lockedRef struct {
	Type, URL, Path, Dir, Rev, NarHash string
}

// readSource reads Nix's answer. The error says which source has no name for its
// content; an evaluation of it can't be known again.
func readSource(answer []byte) (source, error) {
	var doc struct {
		// Path is the copy of the source in the store.
		Path   string
		Locked lockedRef
		Locks  struct {
			Root  string
			Nodes map[string]struct {
				Locked lockedRef
				// Parent is given for a path within another input's source (Nix 2.26 and later).
				Parent json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(answer, &doc); err != nil {
		return source{}, fmt.Errorf("the answer of nix flake metadata: %w", err)
	}
	if doc.Locked.NarHash == "" {
		return source{}, errors.New("no content hash of the flake in the answer of Nix")
	}
	if _, ok := doc.Locks.Nodes[doc.Locks.Root]; !ok {
		return source{}, errors.New("no locked inputs of the flake in the answer of Nix")
	}
	if !filepath.IsAbs(doc.Path) {
		return source{}, errors.New("no copy of the flake in the store in the answer of Nix")
	}
	s := source{document: answer, store: filepath.Dir(doc.Path), flakes: []string{filepath.Join(doc.Path, doc.Locked.Dir, "flake.nix")}}
	place, local := doc.Locked.local()
	switch {
	case !local:
	case doc.Locked.Type != "git" && doc.Locked.Type != "path":
		return source{}, fmt.Errorf("the flake is a local source of the type %s", doc.Locked.Type)
	default:
		s.flakes = append(s.flakes, filepath.Join(place, doc.Locked.Dir, "flake.nix"))
		s.watch(place, doc.Locked)
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Locks.Nodes)) {
		input := doc.Locks.Nodes[name]
		if name == doc.Locks.Root || input.Locked.isRelative() && input.Parent != nil {
			continue
		}
		if input.Locked.NarHash == "" {
			return source{}, fmt.Errorf("no content hash of the input %s in the answer of Nix", name)
		}
		switch place, local := input.Locked.local(); {
		case !local:
		case input.Locked.Rev != "":
			s.committed = append(s.committed, place)
		default:
			s.watch(place, input.Locked)
		}
	}
	return s, nil
}

// watchCommitted adds the trees of inputs that have a revision, as far as there are such
// trees: what a lock names was perhaps fetched elsewhere, or is a repository alone.
func (s *source) watchCommitted() {
	for _, place := range s.committed {
		if _, err := os.Stat(filepath.Join(place, ".git")); err == nil {
			s.watch(place, lockedRef{Type: "git"})
		}
	}
}

func (r lockedRef) isRelative() bool { return r.Type == "path" && !filepath.IsAbs(r.Path) }

// local returns the place of a source on this machine.
func (r lockedRef) local() (string, bool) {
	place := r.Path
	if r.Type != "path" {
		u, err := url.Parse(r.URL)
		if err != nil || u.Scheme != "file" {
			return "", false
		}
		place = u.Path
	}
	return place, filepath.IsAbs(place)
}

// watch adds a local source, unless it lies in the store, where nothing changes.
func (s *source) watch(place string, r lockedRef) {
	if strings.HasPrefix(place, s.store+"/") || slices.Contains(s.trees, place) {
		return
	}
	s.trees = append(s.trees, place)
	if r.Type == "git" {
		s.repositories = append(s.repositories, place)
	}
}

// unsettling are settings that no flake's own settings (nixConfig) may set. Where these are
// accepted they change how Nix evaluates, and `nix config show` doesn't know of them:
// with pure-eval false, getEnv reads the environment.
var unsettling = []string{"pure-eval", "allow-unsafe-native-code-during-evaluation", "plugin-files"}

// checkFlake looks for these settings in flake.nix, where they can only be constants.
func checkFlake(text string) error {
	// In a quoted name Nix reads \- as -.
	text = strings.ReplaceAll(text, `\`, "")
	for _, setting := range unsettling {
		if strings.Contains(text, setting) {
			return fmt.Errorf("flake.nix mentions the setting %s", setting)
		}
	}
	return nil
}

// readSettings says why Nix's settings, as JSON, forbid to take one evaluation
// for another; nil when they don't.
func readSettings(answer []byte) error {
	var settings map[string]struct{ Value any }
	if err := json.Unmarshal(answer, &settings); err != nil {
		return fmt.Errorf("the settings of Nix: %w", err)
	}
	if pure, _ := settings["pure-eval"].Value.(bool); !pure {
		return errors.New("evaluation isn't pure (pure-eval)")
	}
	if native, _ := settings["allow-unsafe-native-code-during-evaluation"].Value.(bool); native {
		return errors.New("evaluation may run programs (allow-unsafe-native-code-during-evaluation)")
	}
	switch plugins := settings["plugin-files"].Value.(type) {
	case nil:
	case []any:
		if len(plugins) > 0 {
			return errors.New("there are plugins of Nix (plugin-files)")
		}
	default:
		return errors.New("there are plugins of Nix (plugin-files)")
	}
	return nil
}

// repeatable are arguments of Nix that leave a pure evaluation a function of the
// flake's locked sources and of settings, each with the number of its values.
// Whatever isn't here turns the cache off.
var repeatable = map[string]int{
	"--option": 2, "--override-input": 2,
	"--no-write-lock-file": 0, "--no-update-lock-file": 0, "--no-registries": 0,
	"--accept-flake-config": 0, "--offline": 0,
	"--show-trace": 0, "--print-build-logs": 0, "-L": 0, "--verbose": 0, "-v": 0, "--quiet": 0,
}

// settingsOf picks the settings from arguments for Nix. The error names the
// argument for which an evaluation can't be known again.
func settingsOf(args []string) ([]string, error) {
	var settings []string
	for i := 0; i < len(args); {
		values, ok := repeatable[args[i]]
		if !ok {
			return nil, fmt.Errorf("the argument %s for Nix", args[i])
		}
		next := i + 1 + values
		if next > len(args) {
			return nil, fmt.Errorf("the argument %s for Nix lacks a value", args[i])
		}
		if args[i] == "--option" || args[i] == "--accept-flake-config" {
			settings = append(settings, args[i:next]...)
		}
		i = next
	}
	return settings, nil
}

// nixEnvironment are the variables that Nix itself reads, sorted.
func nixEnvironment(env []string) []byte {
	var own []string
	for _, entry := range env {
		if strings.HasPrefix(entry, "NIX_") || strings.HasPrefix(entry, "_NIX_") {
			own = append(own, entry)
		}
	}
	slices.Sort(own)
	return []byte(strings.Join(own, "\x00"))
}

// progressWords begin the lines in which Nix tells what it does while it evaluates.
// Other lines are of the evaluation, such as its warnings and traces.
var progressWords = []string{"building ", "copying ", "downloading ", "unpacking ", "fetching ", "these ", "this path", "this derivation", "  /nix/store/"}

// lasting are the lines that an evaluation prints each time.
func lasting(stderr []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(stderr)) {
		if !slices.ContainsFunc(progressWords, func(word string) bool { return strings.HasPrefix(line, word) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}
