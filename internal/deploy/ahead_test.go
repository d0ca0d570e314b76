package deploy

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Hosts are looked at before their turn, a bounded number of them; nothing of that
// shows before it.
func TestLooksAhead(t *testing.T) {
	toplevel := system(t, "new")
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		for _, name := range strings.Fields(names(40)) {
			s.add(name).connects = time.Second
		}
		began := time.Now()
		got := s.run(t, t.Context(), toplevel, names(40), nil)
		var want []string
		for _, name := range strings.Fields(names(40)) {
			want = append(want, strings.ReplaceAll("+N N.connect N.probe N.copy N.switch N.finalize -N", "N", name))
		}
		if diff := cmp.Diff(strings.Join(want, " "), got.shown()); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
		if s.most < 2 || s.most > looksAhead+1 {
			t.Errorf("%d connections were open at once, want some, and at most %d", s.most, looksAhead+1)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("connecting to 40 hosts that take a second each took %v", took)
		}
	})
}

// One host that never answers and one that is refused keep nobody waiting.
func TestDeadHostsHoldNobodyUp(t *testing.T) {
	toplevel := system(t, "new")
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		for _, name := range strings.Fields("a b c d") {
			s.add(name)
		}
		s.nodes["a"].connects, s.nodes["a"].refuses = 15*time.Second, func() error { return refused }
		s.nodes["c"].refuses = func() error { return refused }
		began := time.Now()
		var at time.Duration
		got := s.run(t, t.Context(), toplevel, "a b c d", func(f *Fleet) {
			f.Rollout.Parallel = 3
			emit := f.Emit
			f.Emit = func(r report.Record) {
				emit(r)
				if r.Phase != nil && r.Phase.Node == "d" && r.Phase.Name == report.Finalize {
					at = time.Since(began)
				}
			}
		})
		if got.verdicts() != "a unreachable, b switched, c unreachable, d switched" {
			t.Error(got.verdicts())
		}
		if at > time.Second {
			t.Errorf("the last node was done after %v", at)
		}
		if i, j := strings.Index(got.shown(), "-a"), strings.Index(got.shown(), "-b -c -d"); i < 0 || j < i {
			t.Errorf("the results are not in list order: %s", got.shown())
		}
	})
}

// A look is taken again when it is old or when its connection is gone.
func TestLooksAgain(t *testing.T) {
	toplevel := system(t, "new")
	for _, tt := range []struct {
		name    string
		happens func(second *member)
		copies  time.Duration // of the first node
		want    string        // calls on the second
		verdict verdict.Verdict
		note    string
	}{
		{"fresh", func(*member) {}, 59 * time.Second, "connect probe copy test finalize", verdict.Switched, ""},
		{"old", func(m *member) { m.runs = "/other" }, 61 * time.Second, "connect probe probe copy test finalize", verdict.Switched, "looked at again: the first look was 61 s old"},
		{"deployed meanwhile", func(m *member) { m.runs, m.profile, m.boots, m.valid[toplevel] = toplevel, toplevel, toplevel, true }, time.Hour, "connect probe probe", verdict.Unchanged, "looked at again"},
		{"lost", func(m *member) { m.dead = true }, time.Second, "connect probe reopen probe copy test finalize", verdict.Switched, "the connection was lost before"},
		{"another machine", func(m *member) { m.id = "id-stranger" }, time.Hour, "connect probe probe", verdict.WrongHost, ""},
		{"the first one's machine", func(m *member) { m.id = "id-a" }, time.Hour, "connect probe probe", verdict.WrongHost, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{}
				s.add("a").copies = tt.copies
				second := s.add("b")
				got := s.run(t, t.Context(), toplevel, "a b", func(f *Fleet) {
					emit := f.Emit
					f.Emit = func(r report.Record) {
						emit(r)
						if r.Result != nil && r.Result.Node == "a" {
							tt.happens(second)
						}
					}
				})
				var calls []string
				for _, call := range s.calls {
					if rest, ok := strings.CutPrefix(call, "b "); ok {
						calls = append(calls, rest)
					}
				}
				if diff := cmp.Diff(tt.want, strings.Join(calls, " ")); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				b := got.results[1]
				if b.Verdict != tt.verdict {
					t.Errorf("%s (%s), want %s", b.Verdict, b.Reason, tt.verdict)
				}
				if tt.note != "" && !strings.Contains(strings.Join(b.Notes, "\n"), tt.note) {
					t.Errorf("the notes are %q, want %q", b.Notes, tt.note)
				}
				if tt.name == "old" && b.From.Running != "/other" {
					t.Errorf("the result goes by the old look: from %+v", b.From)
				}
			})
		})
	}
}

// Where a plan is applied, a host that moves while earlier nodes are deployed, or while its
// own closure is copied, is left alone.
func TestPlannedLooksAgain(t *testing.T) {
	toplevel := system(t, "new")
	for _, tt := range []struct {
		name, node string
		phase      report.PhaseName
		copies     time.Duration
		want       string
		calls      string // on b
	}{
		{"nothing moves", "", "", 10 * time.Second, "a switched, b switched", "connect probe probe copy probe test finalize"},
		{"all goes fast", "", "", time.Second, "a switched, b switched", "connect probe copy test finalize"},
		{"before its turn", "a", report.Finalize, 10 * time.Second, "a switched, b stale", "connect probe probe"},
		{"during its copy", "b", report.Copy, 10 * time.Second, "a switched, b stale", "connect probe probe copy probe"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{}
				s.add("a").copies = tt.copies
				b := s.add("b")
				b.copies = tt.copies
				got := s.run(t, t.Context(), toplevel, "a b", func(f *Fleet) {
					f.Planned = map[string]verdict.Sighting{}
					for _, name := range []string{"a", "b"} {
						f.Planned[name] = verdict.Sighting{MachineID: "id-" + name, BootID: "b", Running: "/old", Profile: "/old", BootEntry: "/old", Generation: 7}
					}
					emit := f.Emit
					f.Emit = func(r report.Record) {
						emit(r)
						if r.Phase != nil && r.Phase.Node == tt.node && r.Phase.Name == tt.phase {
							b.runs = "/other"
						}
					}
				})
				if got.verdicts() != tt.want {
					t.Errorf("%s (b: %s), want %s", got.verdicts(), got.reason("b"), tt.want)
				}
				var calls []string
				for _, call := range s.calls {
					if rest, ok := strings.CutPrefix(call, "b "); ok {
						calls = append(calls, rest)
					}
				}
				if diff := cmp.Diff(tt.calls, strings.Join(calls, " ")); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A line that died in silence is noticed by the second look and made again.
func TestLookOverADeadLine(t *testing.T) {
	toplevel := system(t, "new")
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		s.add("a").copies = time.Hour
		second := s.add("b")
		silent := &silentLoss{member: second}
		got := s.run(t, t.Context(), toplevel, "a b", func(f *Fleet) {
			f.Open = func(ctx context.Context, n plan.Node) (Transport, error) {
				transport, err := s.connect(ctx, n)
				if n.Name == "b" && err == nil {
					return silent, nil
				}
				return transport, err
			}
			f.Emit = func(r report.Record) {
				if r.Result != nil && r.Result.Node == "a" {
					second.dead = true
				}
			}
		})
		if got.results[1].Verdict != verdict.Switched {
			t.Errorf("%s: %s", got.results[1].Verdict, got.results[1].Reason)
		}
	})
}

// silentLoss doesn't know of its connection's end.
type silentLoss struct{ *member }

func (silentLoss) Alive() bool { return true }

// A host that is reached only once an earlier one is deployed is not unreachable, where
// nodes go one after the other.
func TestEarlierNodeLeadsTheWay(t *testing.T) {
	toplevel := system(t, "new")
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		s.add("gateway")
		s.add("behind").refuses = func() error {
			if !s.has("gateway test") {
				return refused
			}
			return nil
		}
		s.add("down").refuses = func() error { return refused }
		s.add("closed").refuses = func() error {
			return &ssh.Error{Kind: ssh.LoginRefused, Doing: "connecting", Words: "Permission denied (publickey)."}
		}
		if got := s.run(t, t.Context(), toplevel, "gateway behind down closed", nil); got.verdicts() != "gateway switched, behind switched, down unreachable, closed login-refused" {
			t.Error(got.verdicts())
		}
		logins := 0
		for _, call := range s.calls {
			if call == "closed connect" {
				logins++
			}
		}
		if logins != 1 {
			t.Errorf("a login that was refused was tried %d times", logins)
		}
	})
}
