package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stamp returns the version of the sources in a folder, and their time.
//
// At the commit of a tag vX.Y.Z it is X.Y.Z. Elsewhere it is what the file VERSION
// says with the commit behind it, as 0.1.0-dev.g1a2b3c, and -dirty where files
// differ from it. Where there is no git, it is the file's alone. The time is that
// of the commit, or of SOURCE_DATE_EPOCH where that is set; else it is 1980, which
// is where the times of archives begin.
func Stamp(ctx context.Context, dir string) (version string, when time.Time, err error) {
	file, err := os.ReadFile(filepath.Join(dir, "VERSION"))
	if err != nil {
		return "", time.Time{}, err
	}
	version, when = strings.TrimSpace(string(file)), time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		described, err := git(ctx, dir, "describe", "--tags", "--match", "v[0-9]*", "--long", "--always", "--dirty", "--abbrev=7")
		if err != nil {
			return "", time.Time{}, err
		}
		version = stamped(version, described)
		seconds, err := git(ctx, dir, "log", "-1", "--format=%ct")
		if err != nil {
			return "", time.Time{}, err
		}
		if when, err = epoch(seconds); err != nil {
			return "", time.Time{}, fmt.Errorf("the time of the commit: %w", err)
		}
	}
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		if when, err = epoch(text); err != nil {
			return "", time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
	}
	return version, when, nil
}

// stamped makes a version of the file's and of what git describe says: TAG-N-gHASH
// with N commits since the tag, or HASH alone where there is no tag.
func stamped(file, described string) string {
	described, dirty := strings.CutSuffix(described, "-dirty")
	tag, hash, found := cutLast(described, "-g")
	if !found {
		hash = described
	}
	tag, commits, _ := cutLast(tag, "-")
	if found && commits == "0" && !dirty {
		return strings.TrimPrefix(tag, "v")
	}
	version := file + "-dev.g" + hash
	if dirty {
		version += "-dirty"
	}
	return version
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func epoch(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
