package closure

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

func TestParseCacheURL(t *testing.T) {
	for _, tt := range []struct{ in, shown, read, err string }{
		{in: "https://cache.example.org", shown: "https://cache.example.org", read: "https://cache.example.org"},
		{in: "https://cache.example.org:8443/a%20b/?priority=30&compression=zstd", shown: "https://cache.example.org:8443/a%20b/", read: "https://cache.example.org:8443/a%20b/?priority=30"},
		{in: "https://user:p%40ss@cache.example.org/x", shown: "https://cache.example.org/x", read: "https://user:p%40ss@cache.example.org/x"},
		{in: "s3://bucket?region=eu-west-1&profile=ci&secret-key=/etc/key&endpoint=s3.example.org", shown: "s3://bucket", read: "s3://bucket?region=eu-west-1&endpoint=s3.example.org"},
		{in: "file:///srv/cache?secret-key=/k", shown: "file:///srv/cache", read: "file:///srv/cache"},
		{in: "", err: "begins with http://"},
		{in: "cache.example.org", err: "begins with http://"},
		{in: "/srv/cache", err: "begins with http://"},
		{in: "ssh-ng://root@cache", err: "begins with http://"},
		{in: "file://srv/cache", err: "file:///PATH"},
		{in: "https:///x", err: "a host is wanted"},
		{in: "https://u:secret@c x", err: `' '; write it as %20`},
		{in: "https://u:sec#ret@c", err: `'#'; write it as %23`},
		{in: "https://u:sec'ret@c", err: `'\''; write it as %27`},
		{in: "https://u:secret@c:port/", err: "it is no address"},
		{in: "https://c\nstore = x", err: "%0A"},
	} {
		u, err := ParseCacheURL(tt.in)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: error %v, want %q and no secret", tt.in, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		if u.String() != tt.shown || u.forReaders().text != tt.read {
			t.Errorf("%q: shown as %q, read at %q; want %q, %q", tt.in, u, u.forReaders().text, tt.shown, tt.read)
		}
	}
}

func FuzzParseCacheURL(f *testing.F) {
	for _, seed := range []string{"https://a:b@c/?t=x&priority=3", "s3://b?profile=p", "file:///x", "https://t@h", "http://[::1]:80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseCacheURL(text)
		if err != nil {
			return
		}
		for _, lines := range []string{u.pushConfig(Compression{}), fetchConfig([]string{u.forReaders().text}, nil, 0)} {
			for line := range strings.Lines(lines) {
				if name, _, ok := strings.Cut(line, " ="); !ok || strings.ContainsAny(name, " '\"#") {
					t.Errorf("%q makes the setting %q", text, line)
				}
			}
			if strings.ContainsAny(lines, "'#") {
				t.Errorf("%q can end its quotes or its line:\n%s", text, lines)
			}
		}
	})
}

func TestRedact(t *testing.T) {
	for _, tt := range []struct{ url, text, want string }{
		{"https://c/x", "https://c/x/nix-cache-info", "https://c/x/nix-cache-info"},
		{"https://u:hunter2@c/x", "unable to download 'https://u:hunter2@c/x/a.narinfo': hunter2", "unable to download 'https://xxxxx@c/x/a.narinfo': xxxxx"},
		{"https://bearer9@c/x", "'https://bearer9@c/x'", "'https://xxxxx@c/x'"},
		{"https://u:p%40ss@c", "p@ss and p%40ss", "xxxxx and xxxxx"},
		{"https://c?sig=a%2Fbc&priority=30", "sig=a%2Fbc or a/bc, priority=30", "sig=xxxxx or xxxxx, priority=30"},
		{"s3://b?profile=ci&region=eu", "s3://b?profile=ci&region=eu", "s3://b?profile=ci&region=eu"},
	} {
		u, err := ParseCacheURL(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := u.Redact(tt.text); got != tt.want {
			t.Errorf("%s: %q became %q, want %q", tt.url, tt.text, got, tt.want)
		}
	}
}

// pusher plays Nix where closures are pushed.
type pusher struct {
	mu    sync.Mutex
	calls []child.Command
	said  string // on standard error
	err   error
	at    atomic.Int32 // how many push at this moment
}

func (p *pusher) Run(_ context.Context, c child.Command) (child.Result, error) {
	if p.at.Add(1) > 1 {
		panic("two pushes at once")
	}
	defer p.at.Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
	_, _ = c.Stderr.Write([]byte(p.said))
	return child.Result{}, p.err
}

func via(t *testing.T, to string) *Via {
	t.Helper()
	u, err := ParseCacheURL(to)
	if err != nil {
		t.Fatal(err)
	}
	return (&Via{To: u, NixConfig: "cores = 2"}).Ready()
}

func TestPushOnce(t *testing.T) {
	run := &pusher{said: "copying 3 paths...\ncopying path '/nix/store/a' to 'https://c'...\ncopying pa"}
	e := Engine{Runner: run, Options: [][2]string{{"netrc-file", "/n"}}, Compress: Compression{Level: 3}, Via: via(t, "https://u:hunter2@c/x?secret-key=/k")}
	var told []string
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, toplevel := range []string{smallPath, largePath, smallPath, smallPath} {
		all.Go(func() {
			err := e.push(t.Context(), Job{Toplevel: toplevel, Progress: func(text string) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, text)
			}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(run.calls) != 2 {
		t.Fatalf("%d pushes of 2 closures", len(run.calls))
	}
	for _, c := range run.calls {
		args := strings.Join(c.Args, " ")
		if strings.Contains(args, "hunter2") || !strings.Contains(args, "--option netrc-file /n copy --from auto /nix/store/") {
			t.Errorf("arguments %s", args)
		}
		want := []string{"NIX_CONFIG=cores = 2\nstore = https://u:hunter2@c/x?secret-key=/k&compression=zstd\nnarinfo-cache-positive-ttl = 0\nnarinfo-cache-negative-ttl = 0\nconnect-timeout = 15\ndownload-attempts = 3"}
		if diff := cmp.Diff(want, c.Env); diff != "" {
			t.Error(diff)
		}
	}
	if text := strings.Join(told, "\n"); !strings.Contains(text, "1 of 3 paths pushed to https://c/x") || strings.Contains(text, "hunter2") {
		t.Errorf("told %s", text)
	}
}

// After a push that failed there is no other in the run: a cache that doesn't answer
// would cost its time for each host. An interrupted one says nothing of the cache.
func TestPushFails(t *testing.T) {
	run := &pusher{err: &child.Error{Subject: "pushing to https://c/x", ExitCode: 1, Stderr: "warning: x\nerror: 'https://u:hunter2@c/x/nix-cache-info': HTTP error 401"}}
	e := Engine{Runner: run, Via: via(t, "https://u:hunter2@c/x")}
	job := Job{Toplevel: smallPath, Progress: func(string) {}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.push(ctx, job); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	run.calls = nil
	for range 2 {
		err := e.push(t.Context(), job)
		if err == nil || err.Error() != "pushing to https://c/x: error: 'https://xxxxx@c/x/nix-cache-info': HTTP error 401" {
			t.Errorf("error %v", err)
		}
	}
	if len(run.calls) != 1 {
		t.Errorf("%d pushes, want 1", len(run.calls))
	}
}

func TestPushByCommand(t *testing.T) {
	run := &pusher{}
	e := Engine{Runner: run, Via: via(t, "https://c")}
	e.Via.Push = []string{"attic", "push", "prod"}
	if err := e.push(t.Context(), Job{Toplevel: smallPath, Progress: func(string) {}}); err != nil {
		t.Fatal(err)
	}
	c := run.calls[0]
	if c.Name != "attic" || strings.Join(c.Args, " ") != "push prod "+smallPath || c.Env != nil || len(e.Via.Push) != 3 {
		t.Errorf("ran %+v", c)
	}
}

// fetcher plays a host that fetches, or doesn't.
type fetcher struct {
	Host
	scripts []string
	answers []error
	reopens int
}

func (f *fetcher) Run(_ context.Context, s ssh.Script) error {
	f.scripts = append(f.scripts, s.Text)
	return f.answers[len(f.scripts)-1]
}

func (f *fetcher) Reopen(context.Context) error { f.reopens++; return nil }

func (f *fetcher) Forward(context.Context, string) (int, func(), error) { return 1, func() {}, nil }

func TestVia(t *testing.T) {
	lost := &ssh.Error{Kind: ssh.Lost, Words: "cut"}
	for _, tt := range []struct {
		name    string
		push    error
		answers []error
		done    bool
		err     string
		notes   string
		reopens int
	}{
		{name: "fetched", answers: []error{nil}, done: true},
		{name: "the push fails", push: &child.Error{Subject: "pushing to https://c/x", Stderr: "error: no", ExitCode: 1}, notes: "https://c/x was of no use: pushing to https://c/x: error: no; sending from here"},
		{name: "not fetched", answers: []error{&ssh.ExitError{Words: "error: hunter2 is wrong"}}, notes: "https://c/x was of no use: error: xxxxx is wrong; sending from here"},
		{name: "the line is lost once", answers: []error{lost, nil}, done: true, reopens: 1},
		{name: "the line is lost for good", answers: []error{lost, lost, lost}, err: "cut", reopens: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := Engine{Runner: &pusher{err: tt.push}, Via: via(t, "https://u:hunter2@c/x")}
			e.Via.Keys = []string{"k-1:AAAA"}
			h, sent, way := &fetcher{answers: tt.answers}, Sent{Missing: 2}, &door{}
			host := preflight{missing: []string{smallPath, largePath}, caches: []string{"https://own"}}
			done, err := e.via(t.Context(), h, Job{Toplevel: largePath, Progress: func(text string) {
				if strings.Contains(text, "hunter2") {
					t.Errorf("told %q", text)
				}
			}}, way, host, &sent)
			if done != tt.done || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("done %t, error %v", done, err)
			}
			if got := strings.Join(sent.Notes, "\n"); got != tt.notes {
				t.Errorf("notes %q, want %q", got, tt.notes)
			}
			if done && (sent.By != byVia || sent.FromCaches != 2) || h.reopens != tt.reopens {
				t.Errorf("sent %+v, opened again %d times", sent, h.reopens)
			}
			for _, script := range h.scripts {
				if !strings.Contains(script, "substituters = https://own https://u:hunter2@c/x\nextra-trusted-public-keys = k-1:AAAA\n") {
					t.Errorf("the host is told\n%s", script)
				}
			}
		})
	}
}

// A store that doesn't trust the user takes no settings of importance from it.
func TestViaForAnUntrustedUser(t *testing.T) {
	v := via(t, "https://c")
	v.Keys = []string{"k-1:AAAA"}
	if got, want := v.config(preflight{untrusted: "joe", caches: []string{"https://own"}}, 0), "substituters = https://own https://c\nconnect-timeout = 5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
