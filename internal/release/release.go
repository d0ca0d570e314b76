// Package release makes what a release consists of: archives of the program with
// its manual and completions, the sums of them, and the notes of a version.
//
// The same sources make the same bytes, wherever and whenever that is done with the
// same Go: names, order, owners, modes and times in the archives are fixed, and no
// path of the machine is in the program.
package release

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/docs"
)

// Target is what the program is built for, in Go's words.
type Target struct {
	OS, Arch string
	// Untried says that nobody has deployed from such a machine yet.
	Untried bool
}

// Targets are all that a release has.
func Targets() []Target {
	return []Target{
		{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"},
		{OS: "darwin", Arch: "amd64", Untried: true}, {OS: "darwin", Arch: "arm64", Untried: true},
	}
}

// name is the folder in a target's archive, and the archive's name without its end.
func (t Target) name(version string) string {
	name := strings.Join([]string{docs.Name, version, t.OS, t.Arch}, "-")
	if t.Untried {
		name += "-untried"
	}
	return name
}

// Dist is one making of archives.
type Dist struct {
	// Source is the project's folder, Out the one for the archives, made if need be.
	Source, Out string
	Version     string
	// Time is that of every file in the archives.
	Time    time.Time
	Targets []Target
	// Env is added to the environment of go build.
	Env []string
}

// Make builds the program for each target and writes the archives and SHA256SUMS.
// It returns the sums in the form of sha256sum, sorted by name.
func (d Dist) Make(ctx context.Context) (string, error) {
	shared, err := d.shared(ctx)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(d.Out, 0o755); err != nil {
		return "", err
	}
	var sums []string
	for _, t := range d.Targets {
		program, err := d.build(ctx, t)
		if err != nil {
			return "", err
		}
		files := append(slices.Clone(shared), File{Name: "bin/" + docs.Name, Mode: 0o755, Data: program})
		archive, err := Archive(t.name(d.Version), d.Time, files)
		if err != nil {
			return "", fmt.Errorf("packing %s: %w", t.name(d.Version), err)
		}
		name := t.name(d.Version) + ".tar.gz"
		if err := os.WriteFile(filepath.Join(d.Out, name), archive, 0o644); err != nil {
			return "", err
		}
		sum := sha256.Sum256(archive)
		sums = append(sums, hex.EncodeToString(sum[:])+"  "+name+"\n")
	}
	slices.SortFunc(sums, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	text := strings.Join(sums, "")
	return text, os.WriteFile(filepath.Join(d.Out, "SHA256SUMS"), []byte(text), 0o644)
}

// shared are the files that every archive has.
func (d Dist) shared(ctx context.Context) ([]File, error) {
	var files []File
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(d.Source, name))
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: name, Mode: 0o644, Data: data})
	}
	generated, err := docs.Generate(os.DirFS(d.Source))
	if err != nil {
		return nil, err
	}
	for name, text := range generated {
		if strings.HasSuffix(name, ".1") {
			files = append(files, File{Name: "share/man/man1/" + path.Base(name), Mode: 0o644, Data: []byte(text)})
		}
	}
	completions, err := docs.Completions(ctx)
	if err != nil {
		return nil, err
	}
	for name, text := range completions {
		files = append(files, File{Name: "share/" + name, Mode: 0o644, Data: []byte(text)})
	}
	return files, nil
}

// build links a static program without a path or a time of this machine in it.
func (d Dist) build(ctx context.Context, t Target) ([]byte, error) {
	dir, err := os.MkdirTemp("", "deploy-ssh-release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, docs.Name)
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Minute, fmt.Errorf("building for %s/%s took longer than 20 minutes", t.OS, t.Arch))
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X github.com/deploy-ssh/deploy-ssh/internal/cli.Version="+d.Version,
		"-o", out, "./cmd/deploy-ssh")
	build.Dir = d.Source
	build.Env = append(append(os.Environ(), d.Env...), "CGO_ENABLED=0", "GOOS="+t.OS, "GOARCH="+t.Arch)
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building for %s/%s: %w\n%s", t.OS, t.Arch, cmp.Or(context.Cause(ctx), err), said)
	}
	return os.ReadFile(out)
}

// File is a file of an archive.
type File struct {
	Name string
	Mode int64
	Data []byte
}

// Archive packs files below a folder, sorted by name, with folders before what is in
// them. All have the same time and belong to root.
func Archive(folder string, when time.Time, files []File) ([]byte, error) {
	var packed bytes.Buffer
	// The header of gzip has neither name nor time.
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	header := func(name string, mode, size int64, kind byte) error {
		return archive.WriteHeader(&tar.Header{
			Typeflag: kind, Name: name, Mode: mode, Size: size, ModTime: when.UTC().Truncate(time.Second),
			Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		})
	}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	made := map[string]bool{}
	for _, f := range files {
		name := path.Join(folder, f.Name)
		var above []string
		for dir := path.Dir(name); dir != "." && !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			above = append(above, dir)
		}
		slices.Reverse(above)
		for _, dir := range above {
			if err := header(dir+"/", 0o755, 0, tar.TypeDir); err != nil {
				return nil, err
			}
		}
		if err := header(name, f.Mode, int64(len(f.Data)), tar.TypeReg); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
