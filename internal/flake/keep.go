package flake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sourcegraph/conc"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/evalcache"
	"github.com/deploy-ssh/deploy-ssh/nix"
)

// Keep says where answers of evaluations are kept for later runs, and on what else
// than the request they depend.
type Keep struct {
	// Base is the user's cache directory, such as ~/.cache; "" when there is none.
	Base string
	// Nix is the path of the program that evaluates.
	Nix string
	// Env is the environment that it runs in.
	Env []string
}

// Evaluation tells how a map came about.
type Evaluation struct {
	// Cached is true when nothing had to be evaluated.
	Cached bool
	// Unkept is why the cache was not used, or why something was not left in it;
	// "" when it was used.
	Unkept string
	// Warnings are about a cache that can't be trusted.
	Warnings []string
}

// kept has the answers of earlier runs, and gathers this run's for later ones.
type kept struct {
	run   child.Runner
	cache *evalcache.Cache
	// metadata asks Nix what the flake's source is.
	metadata child.Command
	// options are settings as arguments.
	options []string
	source  source
	// content is a hash of our own over the files of local Git trees.
	content [sha256.Size]byte
	// parts is all that an answer depends on but the expression.
	parts [][]byte
	// before is what the source's files looked like before the first evaluation of
	// this run; nil until then.
	before *[sha256.Size]byte
	fresh  map[evalcache.Key]answer
}

// answer is what Nix said, as it is kept: all of standard output, and the lasting
// lines of standard error.
type answer struct {
	Stdout json.RawMessage `json:"stdout"`
	Stderr string          `json:"stderr"`
}

// untrusted is a cache that others may have written.
type untrusted struct{ error }

// open finds out what the evaluation that is asked for depends on. The error says why no
// answer can be taken or kept; it is an [untrusted] when the cache is at fault.
func (k Keep) open(ctx context.Context, run child.Runner, r Request) (*kept, error) {
	flake, attribute, ok := strings.Cut(r.Ref, "#")
	switch {
	case r.Impure:
		return nil, errors.New("evaluation isn't pure (--impure)")
	case k.Base == "":
		return nil, errors.New("there is no cache directory: neither XDG_CACHE_HOME nor HOME is set")
	case !ok:
		return nil, errors.New("the reference names no attribute")
	case flake == "":
		flake = "."
	}
	options, err := settingsOf(r.Args)
	if err != nil {
		return nil, err
	}
	for _, o := range r.Options {
		options = append(options, "--option", o[0], o[1])
	}
	program, err := identity(k.Nix)
	if err != nil {
		return nil, err
	}
	// What a flake's own settings may do was answered once and for all in this file.
	answered, err := os.ReadFile(trustedSettings(k.Env))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	opened := &kept{run: run, options: options, fresh: map[evalcache.Key]answer{}}
	opened.metadata = child.Command{
		Name: "nix", Subject: "nix flake metadata",
		Args: slices.Concat([]string{"flake", "metadata", "--json"}, features, r.flags(), []string{flake}, r.Args),
	}
	var version, settings, metadata []byte
	var errs [3]error
	var asked conc.WaitGroup
	asked.Go(func() {
		version, errs[0] = opened.ask(ctx, child.Command{Name: "nix", Args: []string{"--version"}}, nil)
	})
	asked.Go(func() { settings, errs[1] = opened.settings(ctx) })
	asked.Go(func() { metadata, errs[2] = opened.ask(ctx, opened.metadata, r.Stderr) })
	asked.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if err := readSettings(settings); err != nil {
		return nil, err
	}
	if opened.source, err = readSource(metadata); err != nil {
		return nil, err
	}
	opened.source.watchCommitted()
	for _, path := range opened.source.flakes {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := checkFlake(string(text)); err != nil {
			return nil, err
		}
	}
	if opened.content, err = contentOf(ctx, run, opened.source.repositories); err != nil {
		return nil, err
	}
	arguments, err := json.Marshal([][]string{r.flags(), r.Args})
	if err != nil {
		return nil, err
	}
	opened.parts = [][]byte{
		version, program, settings, answered, nixEnvironment(k.Env),
		metadata, opened.content[:], arguments, []byte(attribute), nix.Schema,
	}
	if opened.cache, err = evalcache.Open(k.Base); err != nil {
		return nil, untrusted{err}
	}
	return opened, nil
}

func (k *kept) ask(ctx context.Context, c child.Command, stderr io.Writer) ([]byte, error) {
	c.Stderr = stderr
	result, err := k.run.Run(ctx, c)
	return result.Stdout, err
}

// settings are all that Nix goes by, from its files, its environment and arguments.
func (k *kept) settings(ctx context.Context) ([]byte, error) {
	// The old name of the command is the one that all versions know so far.
	out, err := k.ask(ctx, child.Command{Name: "nix", Subject: "nix show-config", Args: slices.Concat([]string{"show-config", "--json"}, features, k.options)}, nil)
	if err != nil && ctx.Err() == nil {
		out, err = k.ask(ctx, child.Command{Name: "nix", Subject: "nix config show", Args: slices.Concat([]string{"config", "show", "--json"}, features, k.options)}, nil)
	}
	return out, err
}

// identity tells one program file from another of the same version.
func identity(program string) ([]byte, error) {
	path, err := filepath.EvalSymlinks(program)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s %d %d", path, info.Size(), info.ModTime().UnixNano()), nil
}

// trustedSettings is where Nix keeps what was answered about flakes' own settings.
func trustedSettings(env []string) string {
	data := variable(env, "XDG_DATA_HOME")
	if data == "" {
		data = filepath.Join(variable(env, "HOME"), ".local", "share")
	}
	return filepath.Join(data, "nix", "trusted-settings.json")
}

func variable(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], name+"="); ok {
			return value
		}
	}
	return ""
}

func (k *kept) key(expression string) evalcache.Key {
	return evalcache.KeyOf(append(slices.Clone(k.parts), []byte(expression))...)
}

// take returns the kept answer to an expression, if there is one and the derivations
// that it names are still in the store. A kept answer that can't be used is an error.
func (k *kept) take(ctx context.Context, ref, expression string, stderr io.Writer) (document, bool, error) {
	body, err := k.cache.Get(k.key(expression))
	if err != nil || body == nil {
		return document{}, false, err
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return document{}, false, fmt.Errorf("a kept answer: %w", err)
	}
	doc, err := decode(ref, a.Stdout)
	if err != nil {
		return document{}, false, fmt.Errorf("a kept answer: %w", err)
	}
	if !k.inStore(ctx, doc) {
		return document{}, false, nil
	}
	if stderr != nil {
		_, _ = io.WriteString(stderr, a.Stderr)
	}
	return doc, true, nil
}

// inStore tells whether the derivations of a document are there. What they refer to
// is there as long as they are.
func (k *kept) inStore(ctx context.Context, doc document) bool {
	var derivations []string
	for _, n := range doc.Nodes {
		if n.DrvPath != "" {
			derivations = append(derivations, n.DrvPath)
		}
	}
	if len(derivations) == 0 {
		return true
	}
	_, err := k.ask(ctx, child.Command{
		Name: "nix-store", Subject: "nix-store --check-validity", Args: slices.Concat([]string{"--check-validity"}, k.options, derivations),
	}, nil)
	return err == nil
}

// evaluating notes what the source's files look like, before Nix reads them again.
func (k *kept) evaluating(ctx context.Context) error {
	if k.before != nil {
		return nil
	}
	seen, err := lookAt(ctx, k.source.trees)
	if err == nil {
		k.before = &seen
	}
	return err
}

// offer gives an answer to be kept.
func (k *kept) offer(expression string, result child.Result) {
	k.fresh[k.key(expression)] = answer{result.Stdout, lasting(result.Stderr)}
}

// keep writes this run's answers. Nix was asked what the source is, and then it read
// the source again to evaluate it: an edit in between, and its undoing since, would
// leave the answer to other content under this one's key. So the files must be as they
// were, and in the time that they were the source must have been the one of the key.
func (k *kept) keep(ctx context.Context) error {
	if len(k.fresh) == 0 {
		return nil
	}
	metadata, err := k.ask(ctx, k.metadata, nil)
	if err != nil {
		return err
	}
	content, err := contentOf(ctx, k.run, k.source.repositories)
	if err != nil {
		return err
	}
	now, err := lookAt(ctx, k.source.trees)
	if err != nil {
		return err
	}
	if now != *k.before || content != k.content || !bytes.Equal(metadata, k.source.document) {
		return errors.New("the flake changed while it was evaluated")
	}
	for key, a := range k.fresh {
		body, err := json.Marshal(a)
		if err == nil {
			err = k.cache.Put(key, body)
		}
		if err != nil {
			return fmt.Errorf("keeping the evaluation: %w", err)
		}
	}
	return nil
}
