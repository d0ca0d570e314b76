package cli

import (
	"path/filepath"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
)

// keep is where evaluations are kept; nil when they are not to be.
func (f *mapFlags) keep(p Process) *flake.Keep {
	if f.noEvalCache {
		return nil
	}
	// A program that isn't there is found missing when it is run.
	nix, _ := p.local().Find("nix")
	return &flake.Keep{Base: cacheDir(p), Nix: nix, Env: p.Env}
}

// cacheDir is the user's cache directory by the XDG base directory specification,
// which says that a path that isn't absolute counts for nothing; "" for none.
func cacheDir(p Process) string {
	if dir := p.getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if home := p.getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".cache")
	}
	return ""
}

// cacheUse is what became of an evaluation in the cache, for its record.
func (f *mapFlags) cacheUse(e flake.Evaluation) string {
	switch {
	case f.noEvalCache:
		return "off: --no-eval-cache"
	case e.Unkept != "":
		return "off: " + e.Unkept
	case e.Cached:
		return "hit"
	}
	return "miss"
}
