package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNotes(t *testing.T) {
	const changelog = `# Changelog

## Unreleased

## [1.1.0] - 2026-02-01

Second.

### Added
- A thing.

` + "```\n## no heading\n```" + `

## 1.0.0
First.

## 0.9.0
`
	for _, tt := range []struct{ version, want, err string }{
		{"v1.1.0", "Second.\n\n### Added\n- A thing.\n\n```\n## no heading\n```\n", ""},
		{"1.0.0", "First.\n", ""},
		{"v0.9.0", "", "entry of 0.9.0 is empty"},
		{"unreleased", "", "is empty"},
		{"1.1", "", "no entry of 1.1, only of Unreleased, 1.1.0, 1.0.0, 0.9.0"},
	} {
		got, err := Notes(changelog, tt.version)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %s\n-want +got\n%s", tt.version, err, tt.err, diff)
		}
	}
}

// The project's own changelog can be released.
func TestOwnChangelog(t *testing.T) {
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Notes(string(changelog), "Unreleased"); err != nil {
		t.Error(err)
	}
}

func TestStamped(t *testing.T) {
	for described, want := range map[string]string{
		"1a2b3c4":                 "0.2.0-dev.g1a2b3c4",
		"1a2b3c4-dirty":           "0.2.0-dev.g1a2b3c4-dirty",
		"v0.1.0-0-g1a2b3c4":       "0.1.0",
		"v0.1.0-0-g1a2b3c4-dirty": "0.2.0-dev.g1a2b3c4-dirty",
		"v0.1.0-12-g1a2b3c4":      "0.2.0-dev.g1a2b3c4",
		"v0.1.0-rc.1-0-g1a2b3c4":  "0.1.0-rc.1",
	} {
		if got := stamped("0.2.0", described); got != want {
			t.Errorf("%s: got %s, want %s", described, got, want)
		}
	}
}

func TestStamp(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Stamp(t.Context(), dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file VERSION: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "VERSION"), []byte("0.2.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	version, when, err := Stamp(t.Context(), dir)
	if version != "0.2.0" || when.Year() != 1980 || err != nil {
		t.Errorf("without git: %s, %v, %v", version, when, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	if _, when, err := Stamp(t.Context(), dir); when.Unix() != 1700000000 || err != nil {
		t.Errorf("got %v, %v", when, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, _, err := Stamp(t.Context(), dir); err == nil {
		t.Error("yesterday is no number of seconds")
	}
}

// Order and times of what goes in don't show in what comes out.
func TestArchiveIsReproducible(t *testing.T) {
	files := []File{{"share/man/b.1", 0o644, []byte("b")}, {"bin/a", 0o755, []byte("a")}, {"LICENSE", 0o644, []byte("c")}}
	when := time.Unix(1700000000, 500)
	first, err := Archive("x-1", when, files)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(files)
	second, err := Archive("x-1", time.Unix(1700000000, 0).In(time.FixedZone("", 3600)), files)
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("two archives of the same files differ: %v", err)
	}
	var names []string
	for _, h := range headers(t, first) {
		names = append(names, h.Name)
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s: owner %d:%d, time %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
	}
	if diff := cmp.Diff([]string{"x-1/", "x-1/LICENSE", "x-1/bin/", "x-1/bin/a", "x-1/share/", "x-1/share/man/", "x-1/share/man/b.1"}, names); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func headers(t *testing.T, archive []byte) []*tar.Header {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	var all []*tar.Header
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
}

// A release for this machine, made in two folders: the same bytes, and a static
// program that runs and tells its version.
func TestDist(t *testing.T) {
	target := Target{OS: runtime.GOOS, Arch: runtime.GOARCH}
	make := func(source string) (string, string) {
		t.Helper()
		out := t.TempDir()
		sums, err := Dist{Source: source, Out: out, Version: "1.2.3", Time: time.Unix(1700000000, 0), Targets: []Target{target}}.Make(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return sums, out
	}
	sums, out := make("../..")
	other := filepath.Join(t.TempDir(), "elsewhere")
	for _, name := range []string{"go.mod", "go.sum", "LICENSE", "README.md", "CHANGELOG.md"} {
		copyFile(t, filepath.Join("../..", name), filepath.Join(other, name))
	}
	copied := []string{"cmd", "internal", "nix", "docs"}
	if _, err := os.Stat("../../vendor"); err == nil {
		copied = append(copied, "vendor") // as Nix builds it
	}
	for _, name := range copied {
		if err := os.CopyFS(filepath.Join(other, name), os.DirFS(filepath.Join("../..", name))); err != nil {
			t.Fatal(err)
		}
	}
	if again, _ := make(other); again != sums {
		t.Errorf("the same sources in two folders:\n%s%s", sums, again)
	}
	verified := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	verified.Dir = out
	if said, err := verified.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, said)
	}
	name := target.name("1.2.3")
	if said, err := exec.CommandContext(t.Context(), "tar", "-xzf", filepath.Join(out, name+".tar.gz"), "-C", out).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, said)
	}
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md", "share/man/man1/deploy-ssh.1", "share/man/man1/deploy-ssh-apply.1",
		"share/bash-completion/completions/deploy-ssh", "share/zsh/site-functions/_deploy-ssh", "share/fish/vendor_completions.d/deploy-ssh.fish"} {
		if info, err := os.Stat(filepath.Join(out, name, file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	program := filepath.Join(out, name, "bin/deploy-ssh")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if said, err := exec.CommandContext(ctx, program, "version").Output(); err != nil || string(said) != "deploy-ssh 1.2.3\n" {
		t.Errorf("version: %q, %v", said, err)
	}
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Section(".interp") != nil {
		t.Error("the program is not static")
	}
	data, err := os.ReadFile(program)
	here, _ := filepath.Abs("../..")
	if err != nil || bytes.Contains(data, []byte(here)) {
		t.Errorf("the program has this machine's paths in it: %v", err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTargetsSayWhatIsUntried(t *testing.T) {
	var names []string
	for _, target := range Targets() {
		names = append(names, target.name("1"))
	}
	if diff := cmp.Diff([]string{"deploy-ssh-1-linux-amd64", "deploy-ssh-1-linux-arm64", "deploy-ssh-1-darwin-amd64-untried", "deploy-ssh-1-darwin-arm64-untried"}, names); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
