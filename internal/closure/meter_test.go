package closure

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestProgressText(t *testing.T) {
	sent := Sent{Missing: 20, MissingBytes: 100_000_000}
	for _, tt := range []struct {
		counts counts
		want   string
	}{
		{counts{}, "0 of 20 paths, 0 B of 100.0 MB sent as 0 B, 0 B/s"},
		{counts{here: 10, nars: 50_000_000, wire: 20_000_000}, "10 of 20 paths, 50.0 MB of 100.0 MB sent as 20.0 MB, 10.0 MB/s, 2s left"},
		{counts{here: 2, caches: 12, nars: 1_000_000, wire: 1_000_000},
			"14 of 20 paths, 1.0 MB of 100.0 MB sent as 1.0 MB, 500.0 kB/s, 12 paths from the host's own caches, 1s left"},
		{counts{caches: 25}, "20 of 20 paths, 0 B of 100.0 MB sent as 0 B, 0 B/s, 25 paths from the host's own caches"},
	} {
		if diff := cmp.Diff(tt.want, progressText(tt.counts, sent, 2*time.Second)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// What the host's Nix says is counted or kept for an error, in whatever pieces it comes.
func TestHearing(t *testing.T) {
	const said = `these 3 paths will be fetched (0.1 MiB download):
  /nix/store/11111111111111111111111111111111-small
don't know how to build these paths:
copying path '/nix/store/11111111111111111111111111111111-small' from 'http://127.0.0.1:4711/TOKEN'...
copying path '/nix/store/22222222222222222222222222222222-large' from 'https://cache.nixos.org'...
copying path '/nix/store/33333333333333333333333333333333-other' from 'http://127.0.0.1:47110'...
waiting for lock on '/nix/store/33333333333333333333333333333333-other'
error: derivation '/nix/store/x.drv' does not have wanted outputs 'deploy-ssh-fetches'
error: some substitutes failed
and no more`
	for _, size := range []int{1, 7, len(said)} {
		var waits []string
		h := &hearing{own: "http://127.0.0.1:4711/", redact: strings.ToUpper, waits: func(text string) { waits = append(waits, text) }}
		h.begin()
		for text := said; text != ""; {
			n := min(size, len(text))
			_, _ = h.Write([]byte(text[:n]))
			text = text[n:]
		}
		if got := h.end(); got != "error: some substitutes failed\nand no more" {
			t.Errorf("kept %q", got)
		}
		if got := h.caches.Load(); got != 2 {
			t.Errorf("%d paths from other caches, want 2", got)
		}
		want := []string{"the host's store is WAITING FOR LOCK ON '/NIX/STORE/33333333333333333333333333333333-OTHER'"}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
	}
}
