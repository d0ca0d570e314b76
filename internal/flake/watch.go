package flake

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxWatched bounds the number of files that are looked at.
const maxWatched = 500_000

var errTooMany = fmt.Errorf("its folders have more than %d files", maxWatched)

// lookAt is a fingerprint of what the file system says of the trees. When it is the
// same before and after, nothing in them was written meanwhile: no program sets the
// time of a file's last change of status.
func lookAt(ctx context.Context, trees []string) ([sha256.Size]byte, error) {
	h := sha256.New()
	count := 0
	var look func(root string) error
	look = func(root string) error {
		return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if count++; count > maxWatched {
				return errTooMany
			}
			if count%1000 == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// Git's objects are named by their content; they come, and never change.
			if entry.IsDir() && entry.Name() == "objects" && slices.Contains(strings.Split(filepath.Dir(path), "/"), ".git") {
				return fs.SkipDir
			}
			var status unix.Stat_t
			if err := unix.Lstat(path, &status); err != nil {
				return &fs.PathError{Op: "lstat", Path: path, Err: err}
			}
			fmt.Fprintf(h, "%q %d %d %o %d %v %v\n", path, status.Dev, status.Ino, status.Mode, status.Size, status.Mtim, status.Ctim)
			if entry.Name() == ".git" && entry.Type().IsRegular() {
				repository, err := worktree(path)
				if err != nil {
					return err
				}
				return look(repository)
			}
			return nil
		})
	}
	for _, tree := range trees {
		// A link to the tree is what people may change, too.
		target, err := filepath.EvalSymlinks(tree)
		if err == nil {
			err = look(target)
		}
		if err != nil {
			return [sha256.Size]byte{}, err
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// worktree is where Git keeps the HEAD of a tree whose .git is a file: a linked
// worktree, or a submodule.
func worktree(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	place, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "gitdir: ")
	if !ok {
		return "", fmt.Errorf("%s names no repository", file)
	}
	if !filepath.IsAbs(place) {
		place = filepath.Join(filepath.Dir(file), place)
	}
	return place, nil
}
