package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/packages"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each testdata/*.json is a recorded run. Its twins are what a person sees of
// it: .out on standard output, .err on standard error.
func TestTextOfRecordedRuns(t *testing.T) {
	runs, err := filepath.Glob("testdata/*.json")
	if err != nil || len(runs) == 0 {
		t.Fatalf("no recorded runs: %v", err)
	}
	for _, run := range runs {
		t.Run(filepath.Base(run), func(t *testing.T) {
			recorded, err := os.ReadFile(run)
			if err != nil {
				t.Fatal(err)
			}
			var out, errs, again, without bytes.Buffer
			text := &Text{Out: &out, Err: &errs}
			full, meaning := NewJSON(&again, false), NewJSON(&without, true)
			for line := range strings.Lines(string(recorded)) {
				var r Record
				decoder := json.NewDecoder(strings.NewReader(line))
				decoder.DisallowUnknownFields()
				if err := decoder.Decode(&r); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				for _, h := range []Handler{text, full, meaning} {
					if err := h.Handle(r); err != nil {
						t.Fatal(err)
					}
				}
			}
			base := strings.TrimSuffix(run, ".json")
			golden(t, base+".out", out.Bytes())
			golden(t, base+".err", errs.Bytes())
			if diff := cmp.Diff(string(recorded), again.String()); diff != "" {
				t.Errorf("JSON does not round-trip (-recorded +again):\n%s", diff)
			}
			// Progress is decoration: the results are the same without it.
			var bare bytes.Buffer
			replay := &Text{Out: &bare, Err: &bytes.Buffer{}}
			for line := range strings.Lines(without.String()) {
				var r Record
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatal(err)
				}
				if r.Progress != nil {
					t.Errorf("a progress record in the stream without: %s", line)
				}
				_ = replay.Handle(r)
			}
			if diff := cmp.Diff(out.String(), bare.String()); diff != "" {
				t.Errorf("results without progress differ (-with +without):\n%s", diff)
			}
			if bytes.ContainsRune(append(out.Bytes(), errs.Bytes()...), '\x1b') {
				t.Error("an escape sequence of a host reached the output")
			}
		})
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update accepts):\n%s", path, diff)
	}
}

// A plan fits the terminal, whatever its width: only what can't be broken is longer.
func TestPlanFits(t *testing.T) {
	recorded, err := os.ReadFile("testdata/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []Planned
	for line := range strings.Lines(string(recorded)) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Planned != nil {
			all = append(all, *r.Planned)
		}
	}
	lines := map[int]int{}
	for _, width := range []int{60, 80, 132} {
		for line := range strings.Lines(plannedText(all, Summary{}, width)) {
			lines[width]++
			line = strings.TrimSuffix(line, "\n")
			if word := strings.TrimSpace(line); len([]rune(line)) > width && strings.Contains(word, " ") {
				t.Errorf("at width %d a line of %d: %q", width, len([]rune(line)), line)
			}
		}
	}
	if lines[60] <= lines[80] || lines[80] <= lines[132] {
		t.Errorf("lines by width: %v", lines)
	}
	many := Planned{Node: "n", Packages: &packages.Changes{}}
	for i := range 2 * mostNamed {
		many.Packages.Added = append(many.Packages.Added, packages.Change{Name: fmt.Sprintf("p%d", i)})
	}
	if text := plannedText([]Planned{many}, Summary{}, 0); !strings.Contains(text, "p39,\n              and 40 more") || strings.Contains(text, "p40") {
		t.Errorf("a long list of packages:\n%s", text)
	}
}

// Asked for all, a status tells of a host that is as wanted, too, and every generation.
func TestVerboseStatus(t *testing.T) {
	made := time.Date(2026, 11, 6, 10, 0, 0, 0, time.UTC)
	st := Status{Node: "web", Wanted: "/nix/store/a", State: State{Running: "/nix/store/a", Profile: "/nix/store/a", BootEntry: "/nix/store/a"}, Booted: "/nix/store/b"}
	for n := range fewGenerations + 2 {
		st.Generations = append(st.Generations, Generation{Number: n + 1, Time: made, System: fmt.Sprintf("/nix/store/%c", 'g'-rune(n))})
	}
	if lines := statusLines(st, false); lines != nil {
		t.Errorf("of a host as wanted: %q", lines)
	}
	want := []string{
		"running: /nix/store/a", "booted: /nix/store/b", "profile: /nix/store/a", "boot entry: /nix/store/a", "wanted: /nix/store/a",
		"generation 7 of 2026-11-06 10:00: a (wanted, runs, boots)", "generation 6 of 2026-11-06 10:00: b", "generation 5 of 2026-11-06 10:00: c",
		"generation 4 of 2026-11-06 10:00: d", "generation 3 of 2026-11-06 10:00: e", "generation 2 of 2026-11-06 10:00: f", "generation 1 of 2026-11-06 10:00: g",
	}
	if diff := cmp.Diff(want, statusLines(st, true)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain → text", "plain → text"},
		{"tab\tand\nline", "tab\tand\nline"},
		{"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"over\rwritten", `over\rwritten`},
		{"bell\a", `bell\a`},
		{"csi \u009b1A", `csi \u009b1A`},
		{"turned \u202e around", `turned \u202e around`},
		{"bad \xff byte", "bad � byte"},
	} {
		if got := Printable(tt.in); got != tt.want {
			t.Errorf("Printable(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b]0;title\a")
	f.Fuzz(func(t *testing.T, s string) {
		if got := Printable(s); strings.ContainsFunc(got, hidden) {
			t.Errorf("Printable(%q) = %q has hidden characters", s, got)
		}
	})
}

func TestLines(t *testing.T) {
	var got []string
	l := &Lines{Line: func(s string) { got = append(got, s) }}
	for _, piece := range []string{"a\nb", "c\r\n", "\n", strings.Repeat("x", maxLine+1), "end"} {
		if n, err := l.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	l.Flush()
	l.Flush()
	if diff := cmp.Diff([]string{"a", "bc", "", strings.Repeat("x", maxLine+1), "end"}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// Of a host that is as wanted only a last run that has not ended well is told.
func TestNotableRuns(t *testing.T) {
	runs := []string{"1 test: ended with 4", "2 test: ended with 0"}
	ended := func(status string) *HostRun { return &HostRun{State: "ended", ExitStatus: status} }
	for _, tt := range []struct {
		name string
		st   Status
		all  bool
		want []string
	}{
		{"no runs", Status{}, false, nil},
		{"as wanted", Status{Runs: runs, LastRun: ended("0")}, false, nil},
		{"as wanted, all", Status{Runs: runs, LastRun: ended("0")}, true, runs},
		{"as wanted, not well", Status{Runs: runs[:1], LastRun: ended("4")}, false, runs[:1]},
		{"as wanted, going on", Status{Runs: runs, LastRun: &HostRun{State: "running"}}, false, runs[1:]},
		{"drift", Status{Runs: runs, LastRun: ended("0"), Drift: []string{"runs another system"}}, false, runs[1:]},
	} {
		if diff := cmp.Diff(tt.want, notableRuns(tt.st, tt.all)); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, diff)
		}
	}
}

// What was not compared is not said to be as wanted; what boots is told apart from what runs.
func TestStatusTable(t *testing.T) {
	const a, b, other = "/nix/store/00000000000000000000000000000001-web", "/nix/store/00000000000000000000000000000002-web", "/nix/store/00000000000000000000000000000003-db"
	for _, tt := range []struct {
		wanted, running, entry string
		row, end               string
	}{
		{"", a, a, "seen - web the same", "1 node seen"},
		{a, a, a, "as wanted - web the same", "1 node as wanted"},
		{"", a, b, "web another one", "1 node seen"},
		{"", a, other, "web db", "1 node seen"},
		{"", a, "", "web -", "1 node seen"},
	} {
		text := statusTable([]Status{{Node: "n", Wanted: tt.wanted, State: State{Running: tt.running, BootEntry: tt.entry}}}, Summary{}, false)
		if !strings.Contains(strings.Join(strings.Fields(text), " "), tt.row) || !strings.Contains(text, tt.end) {
			t.Errorf("%+v: %s", tt, text)
		}
	}
}
