package history

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
)

// Writer is a [report.Handler] that keeps a run in a directory. There is no file before
// the first node's turn, so a run that ends before that, with an error of the map or
// the settings, leaves none.
type Writer struct {
	dir     string
	head    Head
	pending []byte   // what came before the first node's turn
	file    *os.File // nil before that, and after the end
}

// NewWriter returns the writer of a run. Nothing is written yet.
func NewWriter(dir string, head Head) *Writer {
	head.Version = version
	return &Writer{dir: dir, head: head}
}

// maxText is how much of one text is kept.
const maxText = 64 << 10

// password is what stands in front of the host in a URL, parameter one of its
// parameters whose name says what it is.
var (
	password  = regexp.MustCompile(`(https?://)[^/\s"\\@]+@`)
	parameter = regexp.MustCompile(`([?&][A-Za-z0-9_.-]*(?:token|secret|password|apikey|api_key)[A-Za-z0-9_.-]*=)[^&\s"\\#'’]+`)
)

// withoutSecrets is a text without the secrets in its URLs.
func withoutSecrets(text []byte) []byte {
	text = password.ReplaceAll(text, []byte("${1}…@"))
	if !bytes.ContainsAny(text, "?&") {
		return text // the other one takes its time
	}
	return parameter.ReplaceAll(text, []byte("${1}…"))
}

// HasSecret tells whether a text has a URL with a password or a token in it, as far as
// that can be told by its form.
func HasSecret(text string) bool { return string(withoutSecrets([]byte(text))) != text }

// Handle implements [report.Handler]. After an error it must not be called again.
func (w *Writer) Handle(r report.Record) error {
	if r.Progress != nil || r.Output != nil {
		return nil
	}
	text, err := line(shortened(r))
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	text = withoutSecrets(text)
	if w.file == nil {
		w.pending = append(w.pending, text...)
		if r.Announce == nil && r.Result == nil && (r.Phase == nil || r.Phase.Node == "") {
			return nil
		}
		return w.open()
	}
	if _, err := w.file.Write(text); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if r.Summary == nil {
		return nil
	}
	return w.finish()
}

// open makes the file, with what is known so far.
func (w *Writer) open() error {
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of reports: %w", err)
	}
	if err := prune(w.dir, MaxRuns, MaxBytes); err != nil {
		return err
	}
	head, err := line(w.head)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	name := fmt.Sprintf("%s%s-%d%s%s", prefix, w.head.Time.UTC().Format(moment), os.Getpid(), suffix, part)
	file, err := os.OpenFile(filepath.Join(w.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	w.file = file
	// Held for as long as the run goes; the kernel lets go whatever ends it. A file
	// system without locks makes a run look like one that was cut off.
	// Who looks for that holds it, too, for a moment.
	for range 20 {
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := file.Write(bytes.Join([][]byte{head, w.pending}, nil)); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	w.pending = nil
	return nil
}

// finish gives a report that is whole its name.
func (w *Writer) finish() error {
	path := w.file.Name()
	err := w.file.Sync()
	if err == nil {
		err = os.Rename(path, path[:len(path)-len(part)])
	}
	w.Close()
	if err != nil {
		return fmt.Errorf("finishing the report: %w", err)
	}
	return nil
}

// Close lets go of the file. A report without a summary stays one that was cut off.
func (w *Writer) Close() {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
}

// shortened is a record whose texts of Nix and of hosts are of bounded length.
func shortened(r report.Record) report.Record {
	if r.Result != nil {
		result := *r.Result
		result.Reason = short(result.Reason)
		r.Result = &result
	}
	if r.Phase != nil {
		phase := *r.Phase
		phase.Detail = short(phase.Detail)
		r.Phase = &phase
	}
	return r
}

func short(text string) string {
	if len(text) <= maxText {
		return text
	}
	return text[:maxText] + "…"
}
