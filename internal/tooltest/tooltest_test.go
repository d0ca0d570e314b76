package tooltest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorder is a test of which only the end is wanted.
type recorder struct {
	testing.TB
	ended string
	logs  int
}

func (r *recorder) Helper()              {}
func (r *recorder) Logf(string, ...any)  { r.logs++ }
func (r *recorder) Skipf(string, ...any) { r.end("skipped") }
func (r *recorder) Fatalf(string, ...any) {
	r.end("failed")
}

func (r *recorder) end(how string) {
	r.ended = how
	runtime.Goexit()
}

// play runs f as a test does, on a goroutine of its own, and waits for it.
func play(f func(*recorder)) *recorder {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r
}

func TestWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name, rig      string
		programs       []string
		need, shells   string
		found          []string
		wantPassedOver int
	}{
		{"all there", "required", []string{"sh", "dash", "bash", "mksh", "ssh"}, "", "", []string{"sh", "dash", "bash", "mksh"}, 0},
		{"without mksh", "required", []string{"sh", "dash", "bash", "ssh"}, "", "", []string{"sh", "dash", "bash"}, 1},
		{"nothing required", "", []string{"sh"}, "skipped", "", []string{"sh"}, 3},
		{"required", "required", []string{"sh", "bash"}, "failed", "failed", nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, program := range tt.programs {
				if err := os.WriteFile(filepath.Join(dir, program), nil, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			t.Setenv("RIG", tt.rig)
			if got := play(func(r *recorder) { Need(r, "sh", "ssh") }).ended; got != tt.need {
				t.Errorf("Need: the test is %q, want %q", got, tt.need)
			}
			var found []string
			r := play(func(r *recorder) { found = Shells(r) })
			if r.ended != tt.shells || r.logs != tt.wantPassedOver {
				t.Errorf("Shells: the test is %q with %d shells passed over, want %q, %d", r.ended, r.logs, tt.shells, tt.wantPassedOver)
			}
			if diff := cmp.Diff(tt.found, found); diff != "" {
				t.Errorf("Shells (-want +got):\n%s", diff)
			}
		})
	}
}
