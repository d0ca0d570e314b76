package closure

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestErrorLines(t *testing.T) {
	said := "warning: x\nerror: some substitutes failed\nerror: some substitutes failed\nerror: cannot add path because it lacks a signature by a trusted key\n"
	want := "error: cannot add path because it lacks a signature by a trusted key\nerror: some substitutes failed"
	if diff := cmp.Diff(want, errorLines(said)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := errorLines(" sh: nix-store: not found\n"); got != "sh: nix-store: not found" {
		t.Errorf("%q", got)
	}
	if err := signatureHint(want); !strings.HasPrefix(err.Error(), "error: cannot add path") || !strings.Contains(err.Error(), "trusted-users") {
		t.Errorf("%v", err)
	}
}
