package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A verb that was to tell something and couldn't has not ended well, and says so.
func TestOutputThatCannotBeWritten(t *testing.T) {
	for _, tt := range []struct{ code, want int }{
		{verdict.ExitGood, verdict.ExitFailed}, {verdict.ExitDrift, verdict.ExitDrift}, {verdict.ExitInterrupted, verdict.ExitInterrupted},
	} {
		var errs bytes.Buffer
		p := Process{Stdout: full{}, Stderr: &errs}
		out := newOutput(p, true, false, false)
		if got := out.told(p, tt.code); got != tt.code || errs.Len() > 0 {
			t.Errorf("before anything is lost: exit code %d, want %d: %s", got, tt.code, errs.String())
		}
		out.emit(report.Record{Summary: &report.Summary{}})
		if got := out.told(p, tt.code); got != tt.want || !strings.Contains(errs.String(), "writing the output: no space left") {
			t.Errorf("exit code %d, want %d: %s", got, tt.want, errs.String())
		}
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nix-store"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"status", "plan --no-build"} {
		var errs bytes.Buffer
		code := Run(t.Context(), Process{
			Args: strings.Fields(verb + " --store-path web=" + pathA), Dir: t.TempDir(), Stdout: full{}, Stderr: &errs,
			Env: []string{"PATH=" + bin + ":/usr/bin:/bin", `DEPLOY_SSH_NODES={"nodes":{"web":{"host":"127.0.0.1","options":["Port=1"]}}}`, "TMPDIR=" + t.TempDir()},
		})
		if code != verdict.ExitFailed || !strings.Contains(errs.String(), "writing the output: no space left") {
			t.Errorf("%s: exit code %d\n%s", verb, code, errs.String())
		}
	}
}
