package cli

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWidthOf(t *testing.T) {
	if got := widthOf(&bytes.Buffer{}); got != 0 {
		t.Errorf("a buffer is %d wide", got)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if got := widthOf(null); got != 0 {
		t.Errorf("%s is %d wide", os.DevNull, got)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal to be had: %v", err)
	}
	defer func() { _ = terminal.Close() }()
	for columns, want := range map[uint16]int{0: 0, 10: narrow, 132: 132} {
		if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
			t.Fatal(err)
		}
		if got := widthOf(terminal); got != want {
			t.Errorf("a terminal of %d columns is %d wide, want %d", columns, got, want)
		}
	}
}
