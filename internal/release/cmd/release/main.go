// Command release makes what a release of the project consists of. It runs in the
// project's folder.
//
//	release dist             archives and SHA256SUMS, in dist/
//	release verify           the same twice, from two folders and with two caches: both must be alike
//	release version          the version of the sources
//	release notes VERSION    what CHANGELOG.md says of a version
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: release dist | verify | version | notes VERSION")

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "notes" {
		changelog, err := os.ReadFile("CHANGELOG.md")
		if err != nil {
			return err
		}
		notes, err := release.Notes(string(changelog), args[1])
		fmt.Print(notes)
		return err
	}
	if len(args) != 1 {
		return errUsage
	}
	version, when, err := release.Stamp(ctx, ".")
	if err != nil {
		return err
	}
	dist := release.Dist{Source: ".", Out: "dist", Version: version, Time: when, Targets: release.Targets()}
	switch args[0] {
	case "version":
		fmt.Println(version)
		return nil
	case "dist":
		sums, err := dist.Make(ctx)
		fmt.Print(sums)
		return err
	case "verify":
		return verify(ctx, dist)
	}
	return errUsage
}

// verify makes the archives twice, the second time in a copy of the sources with
// an empty build cache.
func verify(ctx context.Context, dist release.Dist) error {
	dir, err := os.MkdirTemp("", "deploy-ssh-verify")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// Both are copied before anything is built: who works on in this folder changes neither.
	var sums [2]string
	for i := range sums {
		if err := copySources(ctx, filepath.Join(dir, "sources", fmt.Sprint(i))); err != nil {
			return err
		}
	}
	for i := range sums {
		dist.Source, dist.Out = filepath.Join(dir, "sources", fmt.Sprint(i)), filepath.Join(dir, "dist", fmt.Sprint(i))
		if sums[i], err = dist.Make(ctx); err != nil {
			return err
		}
		dist.Env = []string{"GOCACHE=" + filepath.Join(dir, "cache")}
	}
	if sums[0] != sums[1] {
		return fmt.Errorf("the same sources made different archives:\n%s\n%s", sums[0], sums[1])
	}
	fmt.Print(sums[0])
	return nil
}

// copySources copies the files of the commit and of the work tree, but not what git ignores.
func copySources(ctx context.Context, to string) error {
	out, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("listing the sources: %w", err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		data, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed from the work tree
		}
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
