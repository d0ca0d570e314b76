package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
)

func TestSelection(t *testing.T) {
	for _, tt := range []struct {
		name        string
		on, exclude []string
		stdin       string
		wantOn      string
		wantExclude string
		err         string
	}{
		{name: "none"},
		{name: "flags", on: []string{"web,@a&@b", "db*"}, exclude: []string{"@x"}, wantOn: "web,@a&@b,db*", wantExclude: "@x"},
		{name: "names a line", on: []string{"-"}, stdin: "web\n  db\r\n\n@eu\tx*\n", wantOn: "web,db,@eu,x*"},
		{name: "among others", on: []string{"a,-,b"}, stdin: "web db", wantOn: "a,web,db,b"},
		{name: "excluded", on: []string{"@eu"}, exclude: []string{" - "}, stdin: "web", wantOn: "@eu", wantExclude: "web"},
		{name: "nobody is excluded", exclude: []string{"-"}, stdin: "\n"},
		{name: "nobody is named", on: []string{"-"}, stdin: " \n", err: `--on "-": standard input names no node`},
		{name: "twice", on: []string{"-"}, exclude: []string{"-"}, stdin: "web", err: `--exclude "-": standard input can be read once, and --on reads it`},
		{name: "twice in one", on: []string{"-,-"}, stdin: "web", err: "can be read once"},
		{name: "no name", on: []string{"-"}, stdin: "web we/b", err: `--on "-": "we/b": no node name or tag has the character '/'`},
		{name: "empty flag", on: []string{""}, err: `--on "": "" selects nothing`},
		{name: "too much", on: []string{"-"}, stdin: strings.Repeat("a ", stdinSize), err: "more than 1024 KiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := mapFlags{on: tt.on, exclude: tt.exclude}
			var r flake.Request
			err := f.selection(t.Context(), Process{Stdin: strings.NewReader(tt.stdin)}, &r)
			if tt.err != "" {
				var usage usageError
				if !errors.As(err, &usage) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tt.wantOn, tt.wantExclude}, []string{written(r.Include), written(r.Exclude)}); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if (r.Include == nil) != (tt.wantOn == "") {
				t.Errorf("nothing selected is %v", r.Include)
			}
		})
	}
}

func written(selectors []flake.Selector) string {
	var texts []string
	for _, s := range selectors {
		texts = append(texts, s.String())
	}
	return strings.Join(texts, ",")
}

func TestNamesFromStdinEnd(t *testing.T) {
	if _, err := namesFromStdin(t.Context(), iotest.ErrReader(errors.New("broken"))); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
	// A pipe that nobody writes to and nobody closes ends with the run.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close(); _ = w.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := namesFromStdin(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := w.WriteString("web db"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	names, err := namesFromStdin(t.Context(), r)
	if diff := cmp.Diff([]string{"web", "db"}, names); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if names, err := namesFromStdin(t.Context(), null); err != nil || len(names) > 0 {
		t.Errorf("got %q, %v", names, err)
	}
	terminal, err := os.Open("/dev/ptmx")
	if err != nil {
		t.Skip("no terminal here: ", err)
	}
	defer func() { _ = terminal.Close() }()
	if _, err := namesFromStdin(t.Context(), terminal); err == nil || !strings.Contains(err.Error(), "is a terminal") {
		t.Errorf("got %v", err)
	}
}
