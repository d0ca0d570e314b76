package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// narrow is the least width that text is made for.
const narrow = 40

// widthOf is the width of the terminal that w is; 0 when it is none.
func widthOf(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 0
	}
	return max(int(size.Col), narrow)
}
