package history

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

var began = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func result(node string, v verdict.Verdict) report.Record {
	return report.Record{Result: &report.Result{Node: node, Verdict: v, Class: v.Row().Class}}
}

func announce(node string) report.Record {
	return report.Record{Announce: &report.Announce{Node: node}}
}

// records are those of a run about web1 and web2.
func records() []report.Record {
	return []report.Record{
		{Run: &report.Run{Source: "git+https://me:secret@example.org/fleet?ref=main&private_token=secret#nodes"}},
		{Plan: &report.Plan{Nodes: []string{"web1", "web2"}}},
		announce("web1"),
		{Progress: &report.Progress{Node: "web1", Text: "secret"}},
		result("web1", verdict.Switched),
		announce("web2"),
		{Result: &report.Result{Node: "web2", Verdict: verdict.BuildFailed, Class: verdict.Failed, Reason: "fetching https://token-secret@example.org: " + strings.Repeat("x", 2*maxText)}},
		{Summary: &report.Summary{ExitCode: 1, Failed: []string{"web2"}}},
	}
}

func write(t *testing.T, dir string, head Head, all []report.Record) *Writer {
	t.Helper()
	w := NewWriter(dir, head)
	for _, r := range all {
		if err := w.Handle(r); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// load is the one run in a directory.
func load(t *testing.T, dir string) Run {
	t.Helper()
	heads, err := Heads(dir)
	if err != nil || len(heads) != 1 {
		t.Fatalf("%d reports, %v; want one", len(heads), err)
	}
	run, err := Load(dir, heads[0])
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func file(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*")
	if err != nil || len(paths) != 1 {
		t.Fatalf("%q, %v; want one file", paths, err)
	}
	return paths[0]
}

func TestWrittenAndRead(t *testing.T) {
	dir := t.TempDir() + "/state/deploy-ssh"
	write(t, dir, Head{Verb: "apply", Map: "m", Goal: "switch", Time: began}, records())
	path := file(t, dir)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("a secret in %s", text)
	}
	if len(text) > maxText+10_000 {
		t.Errorf("%d bytes for one long reason", len(text))
	}
	for at, want := range map[string]os.FileMode{path: 0o600, dir: 0o700} {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", at, info.Mode(), want, err)
		}
	}
	run := load(t, dir)
	if run.Going || run.Summary == nil || run.Verb != "apply" || !run.Time.Equal(began) || run.Source != "git+https://…@example.org/fleet?ref=main&private_token=…#nodes" {
		t.Errorf("read back: %+v", run)
	}
	if diff := cmp.Diff([]string{"web1", "web2"}, run.Nodes); diff != "" || len(run.Results) != 2 || len(run.Records) != 7 {
		t.Errorf("%d results, %d records, nodes (-want +got):\n%s", len(run.Results), len(run.Records), diff)
	}
}

// Whatever moment a run is killed at, what was written by then is read.
func TestCutOff(t *testing.T) {
	all := records()
	for n := range len(all) {
		dir := t.TempDir()
		w := write(t, dir, Head{Verb: "apply", Time: began}, all[:n])
		if n <= 2 {
			if paths, _ := filepath.Glob(dir + "/*"); len(paths) > 0 {
				t.Errorf("after %d records: %q, although no node's turn had come", n, paths)
			}
			continue
		}
		if run := load(t, dir); !run.Going {
			t.Errorf("after %d records: the run is not known to be going", n)
		}
		w.Close()
		path := file(t, dir)
		if !strings.HasSuffix(path, ".jsonl.part") {
			t.Errorf("after %d records: %s looks whole", n, path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, `{"result":{"node":"we`...), 0o600); err != nil {
			t.Fatal(err)
		}
		run := load(t, dir)
		if run.Going || run.Summary != nil || len(run.Nodes) != 2 || !run.Begun["web1"] || len(run.Results) != []int{0, 0, 0, 0, 0, 1, 1, 2}[n] {
			t.Errorf("after %d records: %+v", n, run)
		}
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	for i := range MaxRuns + 5 {
		head := Head{Verb: "apply", Time: began.Add(time.Duration(i) * time.Minute)}
		if i == 0 {
			// It goes on for all of this.
			defer write(t, dir, head, records()[:4]).Close()
			continue
		}
		write(t, dir, head, records())
	}
	heads, err := Heads(dir)
	if err != nil || len(heads) != MaxRuns+1 || !heads[0].Time.Equal(began.Add((MaxRuns+4)*time.Minute)) || !heads[MaxRuns].Going {
		t.Fatalf("%d reports are kept, want %d and the one that is going (%v)", len(heads), MaxRuns, err)
	}
	// By size, too.
	if err := os.WriteFile(dir+"/something-else", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var sum int64
	names, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names[:10] {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	if err := prune(dir, MaxRuns, sum); err != nil {
		t.Fatal(err)
	}
	if left, err := list(dir); err != nil || len(left) != 11 {
		t.Errorf("%d reports are left, want the ten that are small enough together, and the one that is going (%v)", len(left), err)
	}
	if _, err := os.Stat(dir + "/something-else"); err != nil {
		t.Errorf("a foreign file: %v", err)
	}
	// What others call runs, or have written, is not removed, and makes nothing of ours old.
	foreign := []string{"run-1.jsonl", "run-2026-01-31.jsonl", "run-20260131T120000.000Z-web.jsonl"}
	if os.Geteuid() == 0 {
		foreign = append(foreign, "run-20990131T120000.000Z-1.jsonl")
	}
	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, sum), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(dir, foreign[3]), 12345, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := prune(dir, 5, sum); err != nil {
		t.Fatal(err)
	}
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("a foreign file: %v", err)
		}
	}
	if left, err := Heads(dir); err != nil || len(left) != 5 {
		t.Errorf("%d reports are left, want 4 and the one that is going (%v)", len(left), err)
	}
}

func TestWhatIsNoReport(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, Head{Verb: "apply", Time: began}, records())
	whole, err := os.ReadFile(file(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"run-20270131T120000.000Z-1.jsonl": "", "run-20270131T120000.000Z-2.jsonl": "no JSON\n", "run-20270131T120000.000Z-3.jsonl": `{"report":99}` + "\n", "run-20270131T120000.000Z-4.jsonl.part": `{"report":1`, "other.jsonl": string(whole), "run-20270131T120000.000Z-5.json": string(whole),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir+"/other.jsonl", dir+"/run-20270131T120000.000Z-6.jsonl"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/run-20270131T120000.000Z-7.jsonl", 0o700); err != nil {
		t.Fatal(err)
	}
	if run := load(t, dir); run.Name != "20260131T120000.000Z-"+fmt.Sprint(os.Getpid()) {
		t.Errorf("the report is %q", run.Name)
	}
	if heads, err := Heads(dir + "/nowhere"); err != nil || heads != nil {
		t.Errorf("a directory that is not there: %v, %v", heads, err)
	}
}

// A verdict of a later version is not taken for a good one.
func TestForeignVerdict(t *testing.T) {
	var run Run
	run.take(report.Record{Result: &report.Result{Node: "a", Verdict: "sublimated", Class: verdict.Failed}})
	if got := run.Results[0]; got.Verdict != verdict.Unknown || !strings.Contains(got.Reason, "sublimated") {
		t.Errorf("%+v", got)
	}
}

func TestNowhereToWrite(t *testing.T) {
	occupied := t.TempDir() + "/file"
	if err := os.WriteFile(occupied, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(occupied+"/reports", Head{Time: began})
	var failed error
	for _, r := range records()[:3] {
		failed = w.Handle(r)
	}
	w.Close()
	if failed == nil || !strings.Contains(failed.Error(), "not a directory") {
		t.Errorf("error %v, want that it is no directory", failed)
	}
}

// at gives a record its time, in minutes.
func at(minutes int, r report.Record) report.Record {
	when := began.Add(time.Duration(minutes) * time.Minute)
	if r.Announce != nil {
		r.Announce.Time = when
	} else {
		r.Result.Time = when
	}
	return r
}

func TestLasts(t *testing.T) {
	run := func(nodes string, results ...report.Record) Run {
		r := Run{Nodes: strings.Fields(nodes), Begun: map[string]bool{}}
		for _, record := range results {
			r.take(record)
		}
		return r
	}
	for _, tt := range []struct {
		name string
		runs []Run
		want string
	}{
		{"nothing", nil, ""},
		{"all well", []Run{run("a b", result("a", verdict.Switched), result("b", verdict.Unchanged))}, "a+ b+"},
		{"each kind", []Run{run("a b c d", result("a", verdict.Degraded), result("b", verdict.Unknown), result("c", verdict.NotStarted), result("d", verdict.Staged))}, "a:degraded b:unknown c:not-started d+"},
		{"cut off", []Run{run("a b c", result("a", verdict.Switched))}, "a+ b: c:"},
		{"mended since", []Run{run("b", result("b", verdict.Switched)), run("a b", result("a", verdict.Locked), result("b", verdict.Locked))}, "b+ a:locked"},
		{"broken since", []Run{run("a b", result("a", verdict.Locked), result("b", verdict.Switched)), run("b", result("b", verdict.Locked))}, "a:locked b+"},
		{"mended in part since", []Run{
			run("a b c", result("a", verdict.Staged), result("b", verdict.Locked)).LeftUndone(),
			run("a b d", result("a", verdict.Unfinalized), result("b", verdict.Switched), result("d", verdict.Switched)),
		}, "b:locked c: a:unfinalized d+"},
		{"at the same time, and broken later", []Run{
			run("a b", at(2, result("a", verdict.Switched)), at(4, result("b", verdict.Switched))),
			run("a b", at(3, result("a", verdict.Locked)), at(3, result("b", verdict.Locked))),
		}, "a:locked b+"},
		{"at the same time, and cut off later", []Run{
			run("a b", at(2, result("a", verdict.Switched)), at(4, result("b", verdict.Switched))),
			run("a b", at(3, announce("a"))),
		}, "a: b+"},
		{"cut off since", []Run{run("a"), run("a", result("a", verdict.Switched))}, "a:"},
	} {
		var got []string
		for _, l := range Lasts(tt.runs) {
			if l.Good {
				got = append(got, l.Node+"+")
			} else {
				got = append(got, l.Node+":"+string(l.Verdict))
			}
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Whatever is in a file, reading it ends, and no result is one of another verdict than
// this program knows.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"report":1,"verb":"apply"}` + "\n" + `{"result":{"node":"a","verdict":"odd","class":"good"}}` + "\n" + `{"plan"`))
	f.Add([]byte(`{"report":1}` + "\n" + `{"plan":{"nodes":["a"]}}` + "\n" + `{"summary":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		run := Run{Begun: map[string]bool{}}
		if err := run.parse(bytes.NewReader(text), true); err != nil {
			return
		}
		for _, r := range run.Results {
			if !known(r.Verdict) {
				t.Errorf("the verdict %q", r.Verdict)
			}
		}
		_ = Lasts([]Run{run})
	})
}
