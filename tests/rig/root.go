package rig

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

//go:embed root.sh
var rootScript string

// rootPackages are what debootstrap puts into every host beside Debian's minimum.
var rootPackages = []string{
	"systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd",
	"openssh-server", "openssh-client", "nix-bin", "git",
	// debootstrap takes the first of alternatives, which leaves nix-bin unconfigured without these.
	"libdbi-perl", "libdbd-sqlite3-perl",
	"iproute2", "procps", "util-linux", "curl", "openssl", "ca-certificates", "nginx",
	"sudo", "opendoas", "jq", "netcat-openbsd", "less",
	"bash", "fish", "zsh", "tcsh", "mksh",
	// For who looks around in a host.
	"nano",
}

// rootTimeout bounds the building of a root file system, downloads included.
const rootTimeout = 20 * time.Minute

// Root returns the folder of the root file system for a Debian release, as it is in the cache.
// Nobody may write to it.
// It is built when the cache has none of the present recipe; who asks meanwhile waits.
// Then the cache's roots of the release by other recipes go, but for those in use.
// The cache is /var/cache/deploy-ssh-rig, or what the environment's RIG_CACHE says.
func Root(ctx context.Context, suite string, log io.Writer) (string, error) {
	cache := os.Getenv("RIG_CACHE")
	if cache == "" {
		cache = "/var/cache/deploy-ssh-rig"
	}
	// mount gives commas and colons a meaning in an overlay's layers.
	if !filepath.IsAbs(cache) || strings.ContainsAny(cache, ",:\\") {
		return "", fmt.Errorf("RIG_CACHE=%s: want an absolute path without comma, colon and backslash", cache)
	}
	packages := strings.Join(rootPackages, ",")
	recipe := sha256.Sum256([]byte(strings.Join([]string{suite, runtime.GOARCH, packages, privateScript, rootScript}, "\x00")))
	root := filepath.Join(cache, suite+"-"+hex.EncodeToString(recipe[:6]))
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rootTimeout, fmt.Errorf("not done within %v", rootTimeout))
	defer cancel()
	turn, err := lock(ctx, filepath.Join(cache, suite+".lock"))
	if err != nil {
		return "", err
	}
	defer turn.Close()
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	fmt.Fprintf(log, "rig: building a %s root in %s, which takes a minute or two\n", suite, cache)
	if err := buildRoot(ctx, turn, root, suite, packages); err != nil {
		return "", fmt.Errorf("building a %s root: %w", suite, err)
	}
	if err := dropOthers(root, suite, log); err != nil {
		fmt.Fprintf(log, "rig: clearing away old roots: %v\n", err)
	}
	return root, nil
}

func buildRoot(ctx context.Context, turn *os.File, root, suite, packages string) error {
	// Only a whole one gets the final name.
	half := root + ".half"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	script := root + ".sh"
	if err := scriptFile(script, rootScript); err != nil {
		return err
	}
	defer os.Remove(script)
	mirror, err := mirror(ctx)
	if err != nil {
		return err
	}
	cmd := namespaced(script, 0, half, suite, mirror, debootstrapScript(suite), packages)
	// The builder keeps the lock should we die first.
	cmd.ExtraFiles = []*os.File{turn}
	log, err := os.Create(root + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w, see %s:\n%s", err, log.Name(), lastLines(log.Name(), 15))
	}
	return os.Rename(half, root)
}

// dropOthers removes the release's roots beside the given one that nothing on
// this machine has mounted. The caller has the lock on the release.
func dropOthers(root, suite string, log io.Writer) error {
	entries, err := os.ReadDir(filepath.Dir(root))
	if err != nil {
		return err
	}
	isRoot := regexp.MustCompile(`^` + regexp.QuoteMeta(suite) + `-[0-9a-f]{12}$`)
	for _, e := range entries {
		old := filepath.Join(filepath.Dir(root), e.Name())
		if old == root || !e.IsDir() || !isRoot.MatchString(e.Name()) || mounted(e.Name()) {
			continue
		}
		// Whoever mounts it from here on fails, and whoever just has is seen.
		half := old + ".half"
		if err := os.Rename(old, half); err != nil {
			return err
		}
		if mounted(e.Name()) {
			if err := os.Rename(half, old); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(log, "rig: removing %s, which is of another recipe\n", old)
		if err := errors.Join(os.RemoveAll(half), os.RemoveAll(old+".log")); err != nil {
			return err
		}
	}
	return nil
}

// mounted tells whether some process has a mount that names a root.
func mounted(name string) bool {
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo") // errs on a bad pattern only
	for _, table := range tables {
		// A process that has ended meanwhile has no mounts.
		if text, err := os.ReadFile(table); err == nil && strings.Contains(string(text), name) {
			return true
		}
	}
	return false
}

// mirror is where apt gets this machine's packages from, for debootstrap to use;
// empty when apt doesn't say.
func mirror(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking apt for its mirror: %w", err)
	}
	return pickMirror(string(out)), nil
}

// pickMirror takes lines of URI and codename. The archives of updates (NAME-updates,
// NAME-security) may be elsewhere and don't hold a whole release.
func pickMirror(targets string) string {
	for line := range strings.Lines(targets) {
		uri, codename, _ := strings.Cut(strings.TrimSpace(line), " ")
		scheme, _, _ := strings.Cut(uri, ":")
		switch scheme {
		case "http", "https", "file":
			if !strings.Contains(codename, "-") {
				return uri
			}
		}
	}
	return ""
}

// debootstrapScript names the recipe for a release that this debootstrap has never heard of;
// empty when it knows it. The newest releases are made as Debian's unstable is.
func debootstrapScript(suite string) string {
	if _, err := os.Stat("/usr/share/debootstrap/scripts/" + suite); err == nil {
		return ""
	}
	return "sid"
}

func lastLines(path string, n int) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
