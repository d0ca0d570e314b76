package closure

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nix-community/go-nix/pkg/wire"
)

// copyBuffer is how much of a file is read at once.
const copyBuffer = 64 << 10

// archive writes a store path as a NAR, straight from its files. The writer of
// go-nix takes headers instead of a tree and reads a file called "..a" as a step up,
// so only its wire format is used here.
func archive(w io.Writer, path string) error {
	a := &archiver{w: bufio.NewWriterSize(w, copyBuffer)}
	a.strings("nix-archive-1")
	if err := a.node(path); err != nil {
		return fmt.Errorf("packing %s: %w", path, err)
	}
	if a.err == nil {
		a.err = a.w.Flush()
	}
	return a.err
}

// archiver writes nodes. Its first error stays, and nothing is written after it.
type archiver struct {
	w   *bufio.Writer
	err error
}

func (a *archiver) strings(words ...string) {
	for _, word := range words {
		if a.err == nil {
			a.err = wire.WriteString(a.w, word)
		}
	}
}

func (a *archiver) node(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	a.strings("(", "type")
	switch mode := info.Mode(); {
	case mode.IsRegular():
		a.strings("regular")
		if mode&0o100 != 0 {
			a.strings("executable", "")
		}
		a.strings("contents")
		if err := a.file(path, info.Size()); err != nil {
			return err
		}
	case mode.IsDir():
		a.strings("directory")
		entries, err := os.ReadDir(path) // sorted by name, as a NAR wants it
		if err != nil {
			return err
		}
		for _, entry := range entries {
			a.strings("entry", "(", "name", entry.Name(), "node")
			if err := a.node(filepath.Join(path, entry.Name())); err != nil {
				return err
			}
			a.strings(")")
		}
	case mode&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		a.strings("symlink", "target", target)
	default:
		return fmt.Errorf("%s is neither file, directory nor link", path)
	}
	a.strings(")")
	return a.err
}

func (a *archiver) file(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if a.err == nil {
		a.err = wire.WriteUint64(a.w, uint64(size))
	}
	if a.err != nil {
		return a.err
	}
	n, err := io.Copy(a.w, io.LimitReader(f, size))
	if err == nil && n != size {
		err = fmt.Errorf("%s has %d bytes, not %d", path, n, size)
	}
	if err == nil {
		_, err = a.w.Write(make([]byte, (8-size%8)%8))
	}
	a.err = err
	return err
}
