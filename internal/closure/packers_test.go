package closure

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Several copies go on at once with what they share, and a host that takes nothing
// keeps none of it from the others for good.
func TestCopiesSideBySide(t *testing.T) {
	root, paths := store(t)
	shared := newShared(Compression{Level: 3})
	address := func(s *cache, path string) string { return "http://cache" + s.path("nar/"+hashPart(path)+".nar.zst") }
	client := func() (*cache, *http.Client) {
		s, err := newCache(paths, Compression{Level: 3}, shared)
		if err != nil {
			t.Fatal(err)
		}
		s.root = root
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.serve(t.Context(), listener))
		return s, &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
	}
	// It asks for more than there are packers and reads nothing of the answers.
	deaf, stalled := client()
	for range sharedPackers + 3 {
		answer, err := stalled.Get(address(deaf, largePath))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		time.Sleep(time.Millisecond)
	}
	var copies sync.WaitGroup
	for range 3 {
		s, c := client()
		copies.Go(func() {
			var requests sync.WaitGroup
			for range 4 {
				for _, path := range []string{smallPath, largePath} {
					requests.Go(func() {
						answer, err := c.Get(address(s, path))
						if err != nil {
							t.Error(err)
							return
						}
						defer answer.Body.Close()
						if _, err := io.Copy(io.Discard, answer.Body); err != nil {
							t.Error(err)
						}
					})
				}
			}
			requests.Wait()
			if n := s.paths.Load(); n != 2 {
				t.Errorf("%d paths were counted, want 2, each once", n)
			}
			if got, want := s.packed.Load(), int64(paths[0].NarSize+paths[1].NarSize); got != want {
				t.Errorf("%d bytes were counted for the progress, want %d", got, want)
			}
		})
	}
	copies.Wait()
}
