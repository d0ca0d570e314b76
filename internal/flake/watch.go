package flake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
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
			// In Git's own folders, files come and go by which Git locks others. What
			// counts there is files that stay, but for objects: those never change.
			if inGit := slices.Contains(strings.Split(path, "/"), ".git"); inGit {
				switch {
				case entry.IsDir() && entry.Name() == "objects":
					return fs.SkipDir
				case entry.IsDir() || strings.HasSuffix(path, ".lock"):
					return nil
				}
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

// contentOf is a hash of the files that Git knows of, as they are in the trees. Nix has
// one, too, but newer versions (seen with 2.34) remember it by the revision where Git calls a tree
// clean, and evaluate what is in the tree: another content where a file is marked as
// assume-unchanged or skip-worktree, or a submodule has another commit.
func contentOf(ctx context.Context, run child.Runner, repositories []string) ([sha256.Size]byte, error) {
	h := sha256.New()
	for _, tree := range repositories {
		result, err := run.Run(ctx, child.Command{
			Name: "git", Args: []string{"-C", tree, "ls-files", "-z", "--cached", "--recurse-submodules"}, Subject: "git ls-files",
		})
		if err != nil {
			return [sha256.Size]byte{}, err
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(result.Stdout), "\x00"), "\x00") {
			if ctx.Err() != nil {
				return [sha256.Size]byte{}, context.Cause(ctx)
			}
			if err := hashFile(h, tree, name); err != nil {
				return [sha256.Size]byte{}, err
			}
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// hashFile adds what a source's copy in the store has of a file.
func hashFile(h io.Writer, tree, name string) error {
	path := filepath.Join(tree, name)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(h, "%q is gone\n", name)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%q %v %v %d\n", name, info.Mode().Type(), info.Mode()&0o100 != 0, info.Size())
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		fmt.Fprintf(h, "%q\n", target)
		return err
	case info.Mode().IsRegular():
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		_, err = io.Copy(h, file)
		return err
	}
	return nil
}
