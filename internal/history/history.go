// Package history keeps the records of runs in a directory, and tells from them which
// nodes are still to be done.
//
// A report is a file of JSON lines: a [Head], then the run's records without what Nix
// and hosts printed, which can hold anything. It is written as the run goes, under a
// name that ends in ".part", and gets its own name once the run's summary is in it.
// So a deployer that is killed leaves what it knew.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// What a directory keeps at most, the newest runs first.
const (
	MaxRuns  = 50
	MaxBytes = 64 << 20
)

const (
	version = 1
	prefix  = "run-"
	suffix  = ".jsonl"
	part    = ".part"
	moment  = "20060102T150405.000Z"
)

// ours are the names that reports get: in a directory that the user chose there may be
// files of others, which are not ours to remove.
var ours = regexp.MustCompile(`^run-\d{8}T\d{6}\.\d{3}Z-\d+\.jsonl(\.part)?$`)

// Head is the first line of a report.
type Head struct {
	Version int `json:"report"`
	// Verb is what was run: apply or rollback.
	Verb string `json:"verb"`
	// Map is a sum of what names the node map; equal for the same one.
	Map string `json:"map"`
	// Goal is how far the run was to go, and Reboot whether hosts were to be rebooted.
	Goal   string    `json:"goal"`
	Reboot bool      `json:"reboot,omitempty"`
	Time   time.Time `json:"time"`
}

// Run is a report that was read back.
type Run struct {
	Head
	// Name is what people call it by.
	Name string
	// Going says that its program is still at work.
	Going bool
	// Source is the flake reference, without anybody's password.
	Source string
	// Nodes are those that the run was about, in order.
	Nodes []string
	// Begun are the nodes whose turn had come.
	Begun map[string]bool
	// Results are those on record, in their order.
	Results []report.Result
	// Summary is nil for a run that was cut off or is still going.
	Summary *report.Summary
	// Records are all of them, as they were written.
	Records []report.Record
}

// Heads are the reports in a directory without their records, the newest first. A
// directory that isn't there has none. What is no report of this user's is passed over.
func Heads(dir string) ([]Run, error) {
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	var all []Run
	for _, name := range names {
		run, err := read(filepath.Join(dir, name), false)
		if err == nil {
			all = append(all, run)
		}
	}
	return all, nil
}

// Load reads a report with its records.
func Load(dir string, run Run) (Run, error) {
	for _, name := range []string{prefix + run.Name + suffix, prefix + run.Name + suffix + part} {
		loaded, err := read(filepath.Join(dir, name), true)
		if !errors.Is(err, fs.ErrNotExist) {
			return loaded, err
		}
	}
	return Run{}, fmt.Errorf("reading the report %s: %w", run.Name, fs.ErrNotExist)
}

// list is the names of the reports' files, the newest first.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading reports: %w", err)
	}
	var names []string
	for _, e := range entries {
		if ours.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// own reports whether a file is a regular one of this user's.
func own(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid() && info.Mode().IsRegular()
}

// errForeign is what isn't a report of this user's that this program reads.
var errForeign = errors.New("it is no report of yours that this version reads")

// read reads a file: its head, and its records if they are wanted.
func read(path string, records bool) (Run, error) {
	run := Run{Name: nameOf(path), Begun: map[string]bool{}}
	// A directory that others write to may have anything of this name.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return run, fmt.Errorf("reading a report: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return run, fmt.Errorf("reading a report: %w", err)
	}
	if !own(info) || info.Size() > MaxBytes {
		return run, fmt.Errorf("reading the report %s: %w", run.Name, errForeign)
	}
	run.Going = going(file)
	if err := run.parse(file, records); err != nil {
		return run, fmt.Errorf("reading the report %s: %w", run.Name, err)
	}
	return run, nil
}

// parse reads the text of a report: its head, and its records if they are wanted.
func (r *Run) parse(text io.Reader, records bool) error {
	lines := bufio.NewReader(text)
	for first := true; ; first = false {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && !first:
			// A line without an end is one that its program did not live to write.
			return nil
		case errors.Is(err, io.EOF):
			return errForeign
		case err != nil:
			return err
		}
		if first {
			if json.Unmarshal(line, &r.Head) != nil || r.Version != version {
				return errForeign
			}
			if !records {
				return nil
			}
			continue
		}
		var record report.Record
		if json.Unmarshal(line, &record) != nil {
			return errForeign
		}
		r.take(record)
	}
}

// take adds a record to what is known of the run.
func (r *Run) take(record report.Record) {
	switch {
	case record.Run != nil:
		r.Source = record.Run.Source
	case record.Plan != nil:
		r.Nodes = record.Plan.Nodes
	case record.Announce != nil:
		r.Begun[record.Announce.Node] = true
	case record.Result != nil:
		if !known(record.Result.Verdict) {
			record.Result.Reason = fmt.Sprintf("%s, which this version does not know: %s", record.Result.Verdict, record.Result.Reason)
			record.Result.Verdict = verdict.Unknown
		}
		r.Results = append(r.Results, *record.Result)
	case record.Summary != nil:
		r.Summary = record.Summary
	}
	r.Records = append(r.Records, record)
}

func known(v verdict.Verdict) bool {
	return slices.ContainsFunc(verdict.Table(), func(row verdict.Row) bool { return row.Verdict == v })
}

func nameOf(path string) string {
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), part), suffix)
	return strings.TrimPrefix(name, prefix)
}

// going tells whether a report's program still holds it.
func going(file *os.File) bool {
	if unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
		return true
	}
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	return false
}

// prune removes the oldest reports, so that one more finds room, but none that is
// still being written.
func prune(dir string, runs int, size int64) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	kept, sum := 0, int64(0)
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil || !own(info) {
			continue
		}
		kept, sum = kept+1, sum+info.Size()
		if kept < runs && sum <= size || held(path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing an old report: %w", err)
		}
	}
	return nil
}

func held(path string) bool {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	return going(file)
}

// line is a value as one line of JSON.
func line(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return b.Bytes(), err
}
