package ssh

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

const marker = "deploy-ssh-00112233445566778899aabbccddeeff"

func TestFrame(t *testing.T) {
	begin, end := "\n"+marker+" begin\n", marker+" end "
	for _, tt := range []struct {
		name, in, body, noise string
		ended                 bool
		status                int
	}{
		{"plain", begin + "hello\n" + end + "0\n", "hello\n", "", true, 0},
		{"empty body", begin + end + "0\n", "", "", true, 0},
		{"status", begin + "x" + end + "3\n", "x", "", true, 3},
		{"cut in the body", begin + "hal", "hal", "", false, 0},
		{"cut in the end", begin + "x" + end, "x", "", false, 0},
		{"cut in the status", begin + "x" + end + "1", "x", "", false, 0},
		{"noise before", "Welcome to web1\n" + begin + "x" + end + "0\n", "x", "Welcome to web1", true, 0},
		{"noise without a line end", "Welcome" + begin + "x" + end + "0\n", "x", "Welcome", true, 0},
		{"blank noise", "\n \n" + begin + "x" + end + "0\n", "x", "", true, 0},
		{"noise alone", "This account is currently not available.\n", "", "This account is currently not available.", false, 0},
		{"noise alone, short", "no\n", "", "no", false, 0},
		{"noise after", begin + "x" + end + "0\nlogout\n", "x", "", true, 0},
		{"carriage returns", strings.ReplaceAll(begin+"x"+end+"0\n", "\n", "\r\n"), "", marker + " begin\r", false, 0},
		{"a body like an end", begin + marker + " en" + "\n" + end + "0\n", marker + " en\n", "", true, 0},
		{"a body with line ends at its end", begin + "a\n\n\n" + end + "0\n", "a\n\n\n", "", true, 0},
		{"nothing", "", "", "", false, 0},
	} {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			var body bytes.Buffer
			f := newFrame(marker, &body)
			for in := []byte(tt.in); len(in) > 0; {
				n := min(size, len(in))
				if _, err := f.Write(in[:n]); err != nil {
					t.Fatal(err)
				}
				in = in[n:]
			}
			if body.String() != tt.body && tt.ended || f.ended != tt.ended || f.status != tt.status || f.noisyLine() != tt.noise {
				t.Errorf("%s in pieces of %d: body %q, ended %v, status %d, noise %q; want %q, %v, %d, %q",
					tt.name, size, body.String(), f.ended, f.status, f.noisyLine(), tt.body, tt.ended, tt.status, tt.noise)
			}
		}
	}
}

// A line goes on as soon as it is there.
func TestFrameHoldsNoLineBack(t *testing.T) {
	var body bytes.Buffer
	f := newFrame(marker, &body)
	if _, err := f.Write([]byte("\n" + marker + " begin\nhello\n")); err != nil || body.String() != "hello\n" {
		t.Errorf("of the line hello there is %q, %v", body.String(), err)
	}
}

func TestFrameStopsWithItsReader(t *testing.T) {
	f := newFrame(marker, refuses{})
	if _, err := f.Write([]byte("\n" + marker + " begin\nhello, this is more than a marker can be long, surely\n")); err == nil {
		t.Error("Write went on although the body's reader refused")
	}
}

type refuses struct{}

func (refuses) Write([]byte) (int, error) { return 0, errors.New("no") }

// Whatever pieces an answer comes in, it is read alike, and a body comes through whole.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("hello\n"), 3)
	f.Add([]byte("\n"+marker+" end"), 5)
	f.Fuzz(func(t *testing.T, body []byte, size int) {
		if bytes.Contains(body, []byte(marker+" end ")) {
			t.Skip("nobody guesses the marker")
		}
		if size < 1 {
			size = 1
		}
		var got bytes.Buffer
		frame := newFrame(marker, &got)
		in := append([]byte("\n"+marker+" begin\n"), body...)
		in = append(in, []byte(marker+" end 7\n")...)
		for len(in) > 0 {
			n := min(size, len(in))
			_, _ = frame.Write(in[:n])
			in = in[n:]
		}
		if !frame.ended || frame.status != 7 || !bytes.Equal(got.Bytes(), body) {
			t.Errorf("body %q in pieces of %d came as %q, ended %v, status %d", body, size, got.Bytes(), frame.ended, frame.status)
		}
	})
}

// The wrapped script in real shells: status, empty input, and nothing at all when cut.
func TestWrap(t *testing.T) {
	for _, sh := range tooltest.Shells(t) {
		run := func(text string) (string, *frame) {
			var body bytes.Buffer
			f := newFrame(marker, &body)
			cmd := exec.Command(sh)
			cmd.Stdin, cmd.Stdout = strings.NewReader(text), f
			_ = cmd.Run()
			return body.String(), f
		}
		body, f := run(wrap(marker, "cat\nprintf 'a b'\nexit 3", ""))
		if body != "a b" || !f.ended || f.status != 3 || f.noisyLine() != "" {
			t.Errorf("%s: body %q, ended %v, status %d, noise %q", sh, body, f.ended, f.status, f.noisyLine())
		}
		whole := wrap(marker, "printf done", "")
		for n := range len(whole) - 2 {
			if body, f := run(whole[:n]); body != "" || f.begun {
				t.Fatalf("%s: a script cut after %d of %d bytes ran: %q", sh, n, len(whole), body)
			}
		}
	}
}
