package closure

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/nix-community/go-nix/pkg/narinfo"
	"github.com/nix-community/go-nix/pkg/narinfo/signature"
	"github.com/nix-community/go-nix/pkg/nixhash"

	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

const (
	smallPath = "/nix/store/11111111111111111111111111111111-small"
	largePath = "/nix/store/22222222222222222222222222222222-large"
	otherPath = "/nix/store/33333333333333333333333333333333-other"
)

// store makes a store of three paths under a directory, the large one referring to
// the small one, and returns what Nix would say of the first two.
func store(t *testing.T) (root string, paths []narinfo.NarInfo) {
	t.Helper()
	root = t.TempDir()
	for name, content := range map[string][]byte{
		smallPath + "/bin/tool":   []byte("#!/bin/sh\n"),
		largePath + "/a/noise":    noise(2 * smallNar),
		largePath + "/a.b":        nil,
		largePath + "/..c":        []byte("1234567"),
		largePath + "/references": []byte(smallPath + "\n"),
		otherPath + "/secret":     []byte("not of this closure\n"),
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, smallPath, "bin/tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("bin/tool", filepath.Join(root, smallPath, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{smallPath, largePath} {
		var nar bytes.Buffer
		if err := archive(&nar, root+path); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(nar.Bytes())
		info := narinfo.NarInfo{StorePath: path, NarSize: uint64(nar.Len()),
			NarHash: nixhash.MustNewHashWithEncoding(nixhash.SHA256, sum[:], nixhash.NixBase32, true)}
		if path == largePath {
			info.References = []string{filepath.Base(smallPath)}
		}
		paths = append(paths, info)
	}
	return root, paths
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func TestArchiveIsNixs(t *testing.T) {
	tooltest.Need(t, "nix-store")
	root, _ := store(t)
	for _, path := range []string{smallPath, largePath, smallPath + "/bin/tool", smallPath + "/link"} {
		want, err := exec.CommandContext(t.Context(), "nix-store", "--dump", root+path).Output()
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := archive(&got, root+path); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got.Bytes()) {
			t.Errorf("the archive of %s differs from nix-store --dump", path)
		}
	}
	if err := archive(io.Discard, "/dev/null"); err == nil {
		t.Error("a device was packed")
	}
	if err := archive(io.Discard, root+"/none"); err == nil {
		t.Error("a missing path was packed")
	}
}

// served is a cache that answers on a port of this machine.
func served(t *testing.T, c Compression) (*cache, *httptest.Server) {
	t.Helper()
	root, paths := store(t)
	s, err := newCache(paths, c, newShared(c))
	if err != nil {
		t.Fatal(err)
	}
	s.root = root
	server := httptest.NewServer(s.server.Handler)
	t.Cleanup(server.Close)
	return s, server
}

func get(t *testing.T, method, address string) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, body
}

// Nothing but the closure can be fetched, and nothing at all without the token.
func TestCacheServesTheClosureAlone(t *testing.T) {
	for _, c := range []Compression{{}, {Level: 1}, {Level: 3}, {Level: 10}, DefaultCompression} {
		t.Run(c.String(), func(t *testing.T) {
			s, server := served(t, c)
			own := server.URL + "/" + s.token + "/"
			if status, body := get(t, "GET", own+"nix-cache-info"); status != 200 || !strings.Contains(string(body), "StoreDir: /nix/store\n") {
				t.Errorf("nix-cache-info: %d %s", status, body)
			}
			for _, path := range []string{smallPath, largePath} {
				status, body := get(t, "GET", own+hashPart(path)+".narinfo")
				info, err := narinfo.Parse(bytes.NewReader(body))
				if status != 200 || err != nil {
					t.Fatalf("narinfo of %s: %d %v\n%s", path, status, err, body)
				}
				if !signature.VerifyFirst(info.Fingerprint(), info.Signatures, []signature.PublicKey{s.public}) {
					t.Errorf("the narinfo of %s is not signed:\n%s", path, body)
				}
				if status, _ := get(t, "HEAD", own+hashPart(path)+".narinfo"); status != 200 {
					t.Errorf("HEAD of the narinfo: %d", status)
				}
				status, packed := get(t, "GET", own+info.URL)
				nar := packed
				if c.Level > 0 {
					d, err := zstd.NewReader(bytes.NewReader(packed))
					if err != nil {
						t.Fatal(err)
					}
					if nar, err = io.ReadAll(d); err != nil {
						t.Fatal(err)
					}
				}
				if sum := sha256.Sum256(nar); status != 200 || !bytes.Equal(sum[:], info.NarHash.Digest()) {
					t.Errorf("NAR of %s: %d, %d bytes, of another hash", path, status, len(nar))
				}
			}
			if s.paths.Load() != 2 {
				t.Errorf("%d NARs were counted, want 2", s.paths.Load())
			}
			for _, path := range []string{
				"", "/", "/nix-cache-info", "/" + s.token, own[len(server.URL):],
				"/" + s.token + "/" + hashPart(otherPath) + ".narinfo", "/" + s.token + "/nar/" + hashPart(otherPath) + ".nar.zst",
				"/" + s.token + "/nar/" + hashPart(otherPath) + ".nar",
				"/" + strings.Repeat("0", len(s.token)) + "/nix-cache-info", "/" + s.token[:len(s.token)-1] + "/nix-cache-info",
				"/" + s.token + "/nar/../../../etc/passwd", "/" + s.token + "/../" + s.token + "/nix-cache-info",
				"/" + s.token + "/nar/" + url.PathEscape("../../..") + otherPath + "/secret", "/" + s.token + "//nix-cache-info", "//" + s.token + "/nix-cache-info",
				"/%2e%2e/" + s.token + "/nix-cache-info",
			} {
				if status, body := get(t, "GET", server.URL+path); status != 404 {
					t.Errorf("GET %s: %d %.80s", path, status, body)
				}
			}
			for _, method := range []string{"PUT", "POST", "DELETE"} {
				if status, _ := get(t, method, own+"nix-cache-info"); status != 404 {
					t.Errorf("%s: %d", method, status)
				}
			}
			if text := s.redact("from '" + own + "'"); strings.Contains(text, s.token) {
				t.Errorf("the token is in %q", text)
			}
		})
	}
}

// A path that changes or goes away while it is sent ends without an orderly end.
func TestCacheCutsWhatItCantSend(t *testing.T) {
	s, server := served(t, Compression{Level: 1})
	if err := os.RemoveAll(s.root + largePath + "/a"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(s.root + smallPath); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", s.root+largePath+"/a"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(server.URL + "/" + s.token + "/nar/" + hashPart(smallPath) + ".nar.zst")
	if err == nil {
		_, err = io.ReadAll(answer.Body)
		answer.Body.Close()
	}
	if err == nil {
		t.Error("a path that is gone was answered in good order")
	}
	if s.paths.Load() != 0 {
		t.Errorf("%d NARs were counted", s.paths.Load())
	}
}

// When the copy is over nothing can be fetched any more, and no request goes on.
func TestCacheStops(t *testing.T) {
	root, paths := store(t)
	s, err := newCache(paths, Compression{Level: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.root = root
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	stop := s.serve(t.Context(), listener)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	address := "http://cache/" + s.token + "/nix-cache-info"
	if answer, err := client.Get(address); err != nil || answer.StatusCode != 200 {
		t.Fatalf("%v, %v", answer, err)
	}
	if s.sent.Load() == 0 {
		t.Error("no byte was counted")
	}
	stop()
	if answer, err := client.Get(address); err == nil {
		t.Errorf("after the copy: %s", answer.Status)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is still there")
	}
}

// What a host's Nix takes from whom, played with the real one: an attacker on the
// host who has the port, or listens to everything, gets nothing accepted.
func TestNixTakesNothingFromAnAttacker(t *testing.T) {
	tooltest.Need(t, "nix-store")
	before, _ := served(t, Compression{Level: 1}) // an earlier run
	narinfoOf := func(s *cache, path string) string {
		r := httptest.NewRecorder()
		s.answer(r, httptest.NewRequest("GET", s.path(hashPart(path)+".narinfo"), nil))
		return r.Body.String()
	}
	without := func(text, prefix string) string {
		var kept []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, prefix) {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	for _, tt := range []struct {
		name string
		// answer changes what the host gets for a path of the URL; nil is nobody between.
		answer func(s *cache, path string, body []byte) []byte
		taken  bool
		words  string
	}{
		{name: "nobody", taken: true},
		// What a request gets that waits for an encoder.
		{name: "empty frames", taken: true, answer: func(_ *cache, path string, body []byte) []byte {
			if strings.Contains(path, "/nar/") {
				return append(append(bytes.Clone(emptyFrame), emptyFrame...), body...)
			}
			return body
		}},
		{name: "no signature", words: "not signed by any of the keys", answer: func(_ *cache, path string, body []byte) []byte {
			return []byte(without(string(body), "Sig:"))
		}},
		{name: "another key of the same name", words: "not signed by any of the keys", answer: func(s *cache, path string, body []byte) []byte {
			info, err := narinfo.Parse(bytes.NewReader(body))
			if err != nil {
				return body
			}
			key, _, _ := signature.GenerateKeypair(s.public.Name, nil)
			forged, _ := key.Sign(rand.Reader, info.Fingerprint())
			info.Signatures = []signature.Signature{forged}
			return []byte(info.String())
		}},
		{name: "an earlier run's narinfo", words: "not signed by any of the keys", answer: func(_ *cache, path string, body []byte) []byte {
			for _, p := range []string{smallPath, largePath} {
				if strings.Contains(path, hashPart(p)+".narinfo") {
					return []byte(narinfoOf(before, p))
				}
			}
			return body
		}},
		{name: "another path's signed narinfo", words: "error:", answer: func(s *cache, path string, body []byte) []byte {
			if strings.Contains(path, hashPart(largePath)+".narinfo") {
				return []byte(narinfoOf(s, smallPath))
			}
			return body
		}},
		{name: "another NAR", words: "error:", answer: func(s *cache, path string, body []byte) []byte {
			if strings.Contains(path, "/nar/") {
				encoder, _ := zstd.NewWriter(nil)
				var nar bytes.Buffer
				_ = archive(&nar, s.root+otherPath)
				return encoder.EncodeAll(nar.Bytes(), nil)
			}
			return body
		}},
		{name: "one bit", words: "error:", answer: func(_ *cache, path string, body []byte) []byte {
			if strings.Contains(path, "/nar/"+hashPart(largePath)) {
				body = bytes.Clone(body)
				body[len(body)/2] ^= 1
			}
			return body
		}},
		{name: "cut short", words: "error:", answer: func(_ *cache, path string, body []byte) []byte {
			if strings.Contains(path, "/nar/"+hashPart(largePath)) {
				return body[:len(body)/2]
			}
			return body
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, server := served(t, Compression{Level: 1})
			between := server
			if tt.answer != nil {
				target, _ := url.Parse(server.URL)
				proxy := httputil.NewSingleHostReverseProxy(target)
				proxy.ModifyResponse = func(r *http.Response) error {
					body, err := io.ReadAll(r.Body)
					if err != nil || r.StatusCode != 200 {
						return err
					}
					body = tt.answer(s, r.Request.URL.Path, body)
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
					r.Header.Set("Content-Length", fmt.Sprint(len(body)))
					return nil
				}
				between = httptest.NewServer(proxy)
				defer between.Close()
			}
			port := between.Listener.Addr().(*net.TCPAddr).Port
			host := t.TempDir()
			t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+w", host).Run() })
			nix := func(args ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), "nix-store", args...)
				cmd.Env = append(os.Environ(), "NIX_REMOTE=local?root="+host, "HOME="+host, "XDG_CACHE_HOME="+host+"/cache",
					"NIX_CONFIG="+config(s, &door{port: port}, nil)+"\nbuild-users-group =\ndownload-attempts = 1")
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			said, err := nix("--realise", "--quiet", largePath, smallPath)
			if (err == nil) != tt.taken || !strings.Contains(said, tt.words) {
				t.Errorf("%v, taken should be %v, with the word %q:\n%s", err, tt.taken, tt.words, said)
			}
			if _, err := nix("--check-validity", largePath); (err == nil) != tt.taken {
				t.Errorf("valid: %v, want %v", err == nil, tt.taken)
			}
		})
	}
}
