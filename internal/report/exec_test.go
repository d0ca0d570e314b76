package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// piece is what Pieces says.
type piece struct {
	Text string
	Open bool
}

func pieces(size int, in string) []piece {
	var got []piece
	l := &Pieces{Piece: func(b []byte, open bool) { got = append(got, piece{string(b), open}) }}
	for rest := []byte(in); len(rest) > 0; {
		n := min(size, len(rest))
		_, _ = l.Write(rest[:n])
		rest = rest[n:]
	}
	l.Flush()
	l.Flush()
	return got
}

func TestPieces(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct {
		name, in string
		want     []piece
	}{
		{"nothing", "", nil},
		{"lines", "a\n\nb\r\n", []piece{{"a", false}, {"", false}, {"b\r", false}}},
		{"no line end", "a\nb", []piece{{"a", false}, {"b", true}}},
		{"as long as can be", long + "\n", []piece{{long, false}}},
		{"too long", long + "y\nz\n", []piece{{long, true}, {"y", false}, {"z", false}}},
		{"cut between characters", long[1:] + "ü\n", []piece{{long[1:], true}, {"ü", false}}},
		{"no text", long[1:] + "\xff\xfe\n", []piece{{long[1:] + "\xff", true}, {"\xfe", false}}},
		{"half a character at the end", "a\xe2\x82", []piece{{"a\xe2\x82", true}}},
	} {
		for _, size := range []int{1, 7, maxLine, 1 << 20} {
			if diff := cmp.Diff(tt.want, pieces(size, tt.in)); diff != "" {
				t.Errorf("%s in writes of %d (-want +got):\n%.500s", tt.name, size, diff)
			}
		}
	}
}

// Nothing is lost or added, whatever comes in.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("a\nb"), 3)
	f.Add(bytes.Repeat([]byte("ü"), maxLine), 1000)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		if size < 1 {
			size = 1
		}
		var out strings.Builder
		for _, p := range pieces(size, string(in)) {
			out.WriteString(p.Text)
			if !p.Open {
				out.WriteByte('\n')
			}
			if len(p.Text) > maxLine {
				t.Errorf("a piece of %d bytes", len(p.Text))
			}
		}
		if got := out.String(); got != string(in) {
			t.Errorf("%q came as %q", in, got)
		}
	})
}

// What is no text is kept in JSON, and shown harmless to a person.
func TestOutput(t *testing.T) {
	var out, errs bytes.Buffer
	text := &Text{Out: &out, Err: &errs}
	for _, o := range []Output{
		NewOutput("web1", Stdout, []byte("plain\r"), false),
		NewOutput("web1", Stdout, []byte("\x1b[31mred"), true),
		NewOutput("web1", Stderr, []byte("bad \xff"), false),
	} {
		if err := text.Handle(Record{Output: &o}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff("web1 | plain\nweb1 | \\x1b[31mred\n", out.String()); diff != "" {
		t.Errorf("standard output (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("web1 | bad �\n", errs.String()); diff != "" {
		t.Errorf("standard error (-want +got):\n%s", diff)
	}
	if o := NewOutput("web1", Stdout, []byte("bad \xff"), false); o.Text != "" || string(o.Bytes) != "bad \xff" {
		t.Errorf("as a record: %+v", o)
	}
}
