package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/activate"
	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/rollout"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// site is some machines in memory, and what happened on them all.
type site struct {
	mu    sync.Mutex
	calls []string // "NODE CALL", in the order of their beginning
	open  int      // connections that are open
	most  int      // the most of them at once
	nodes map[string]*member
}

// member is one machine of a site. The time of its calls is that of a bubble.
type member struct {
	machine
	site *site
	name string
	// id is its machine id; empty for none.
	id string
	// connects and copies are how long these take.
	connects, copies time.Duration
	// switches is how long an activation takes.
	switches time.Duration
	// refuses is why a connection is refused; nil when it isn't.
	refuses func() error
	// dead is whether the connection is known to be gone; reopening mends it.
	dead bool
}

func (s *site) add(name string) *member {
	m := &member{machine: machine{runs: "/old", profile: "/old", boots: "/old", valid: map[string]bool{}}, site: s, name: name, id: "id-" + name}
	if s.nodes == nil {
		s.nodes = map[string]*member{}
	}
	s.nodes[name] = m
	return m
}

func (s *site) saw(name, call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name+" "+call)
}

// has tells whether a call was seen, "NODE CALL".
func (s *site) has(call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.calls, call)
}

func (s *site) connect(ctx context.Context, n plan.Node) (Transport, error) {
	m := s.nodes[n.Name]
	s.saw(n.Name, "connect")
	select {
	case <-time.After(m.connects):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m.refuses != nil {
		if err := m.refuses(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	s.open++
	s.most = max(s.most, s.open)
	s.mu.Unlock()
	return m, nil
}

func (m *member) Alive() bool { return !m.dead }

func (m *member) Run(ctx context.Context, s ssh.Script) error {
	before := len(m.calls)
	if m.dead {
		return &ssh.Error{Kind: ssh.Lost, Doing: s.Doing, Words: "gone"}
	}
	err := m.machine.Run(ctx, s)
	if m.calls[before] == "probe" && s.Output != nil && m.id != "" {
		_, _ = fmt.Fprintf(s.Output, "machine-id %s\n", m.id)
	}
	m.site.saw(m.name, m.calls[before])
	if m.calls[before] == "test" {
		time.Sleep(m.switches)
	}
	return err
}

func (m *member) Reopen(context.Context) error {
	m.site.saw(m.name, "reopen")
	m.dead = false
	return nil
}

func (m *member) Copy(ctx context.Context, h facts.Host, job closure.Job) (closure.Sent, error) {
	m.site.saw(m.name, "copy")
	time.Sleep(m.copies)
	return m.machine.Copy(ctx, h, job)
}

func (m *member) Finalize(ctx context.Context, r activate.Run, s activate.Sink) (activate.Outcome, error) {
	m.site.saw(m.name, "finalize")
	return m.machine.Finalize(ctx, r, s)
}

func (m *member) Close() {
	m.site.mu.Lock()
	defer m.site.mu.Unlock()
	m.site.open--
}

// fleetRun is what came of a run over a site.
type fleetRun struct {
	results []report.Result
	records []report.Record
}

func (s *site) run(t *testing.T, ctx context.Context, toplevel string, names string, change func(*Fleet)) fleetRun {
	t.Helper()
	var out fleetRun
	f := &Fleet{Limits: DefaultLimits(), Open: s.connect, Emit: func(r report.Record) { out.records = append(out.records, r) }}
	if change != nil {
		change(f)
	}
	var nodes []plan.Node
	for _, name := range strings.Fields(names) {
		nodes = append(nodes, plan.Node{Name: name, Toplevel: toplevel})
	}
	out.results = f.Run(ctx, nodes, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != 0 {
		t.Errorf("%d connections are still open", s.open)
	}
	return out
}

func (r fleetRun) verdicts() string {
	var words []string
	for _, result := range r.results {
		words = append(words, result.Node+" "+string(result.Verdict))
	}
	return strings.Join(words, ", ")
}

// shown is the records in short: "+a" for an announcement, "a.copy" for a phase and
// "-a" for a result.
func (r fleetRun) shown() string {
	var words []string
	for _, record := range r.records {
		switch {
		case record.Announce != nil:
			words = append(words, "+"+record.Announce.Node)
		case record.Phase != nil:
			words = append(words, record.Phase.Node+"."+string(record.Phase.Name))
		case record.Result != nil:
			words = append(words, "-"+record.Result.Node)
		}
	}
	return strings.Join(words, " ")
}

func (r fleetRun) reason(node string) string {
	for _, result := range r.results {
		if result.Node == node {
			return result.Reason
		}
	}
	return ""
}

func names(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("n%02d", i))
	}
	return strings.Join(all, " ")
}

var refused = &ssh.Error{Kind: ssh.Unreachable, Doing: "connecting", Words: "refused"}

func limit(text string) (l rollout.Limit) {
	_ = l.Set(text)
	return l
}

func TestStopRules(t *testing.T) {
	toplevel := system(t, "new")
	for _, tt := range []struct {
		name    string
		policy  rollout.Policy
		bad     string // of a to f
		want    string
		reason  string // of f, if it is not started
		contact string // nodes that were connected to, if not all
	}{
		{"no rule", rollout.Policy{}, "a b", "a unreachable, b unreachable, c switched, d switched, e switched, f switched", "", ""},
		{"one too many", rollout.Policy{MaxFailures: limit("1")}, "a c", "a unreachable, b switched, c unreachable, d not-started, e not-started, f not-started", "--max-failures 1: 2 of 6 nodes have failed (a, c)", ""},
		{"one too many, before one that is as wanted", rollout.Policy{MaxFailures: limit("0")}, "a done", "a unreachable, b not-started, c not-started, d not-started, e not-started, f not-started", "--max-failures 0: 1 of 6 nodes have failed (a)", ""},
		{"a part", rollout.Policy{MaxFailures: limit("50%")}, "a b c", "a unreachable, b unreachable, c unreachable, d switched, e switched, f switched", "", ""},
		{"canary", rollout.Policy{Canary: 2}, "b", "a switched, b unreachable, c not-started, d not-started, e not-started, f not-started", "--canary 2: the canary b is unreachable", "a b"},
		{"canaries in parallel", rollout.Policy{Canary: 2, Parallel: 2}, "a", "a unreachable, b switched, c not-started, d not-started, e not-started, f not-started", "--canary 2: the canary a is unreachable", "a b"},
		{"good canaries", rollout.Policy{Canary: 2, Parallel: 6}, "d", "a switched, b switched, c switched, d unreachable, e switched, f switched", "", ""},
		{"batches", rollout.Policy{Batch: 2, Parallel: 2, MaxFailures: limit("0")}, "a", "a unreachable, b switched, c not-started, d not-started, e not-started, f not-started", "--max-failures 0: 1 of 6 nodes have failed (a)", "a b"},
		{"lockstep", rollout.Policy{Strategy: rollout.Lockstep, MaxFailures: limit("1")}, "b", "a switched, b unreachable, c switched, d switched, e switched, f switched", "", ""},
		{"lockstep, one too many", rollout.Policy{Strategy: rollout.Lockstep, MaxFailures: limit("0")}, "b", "a not-started, b unreachable, c not-started, d not-started, e not-started, f not-started", "--max-failures 0: 1 of 6 nodes have failed (b); the host was not changed", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{}
				for _, name := range strings.Fields("a b c d e f") {
					m := s.add(name)
					m.copies = time.Second
					if slices.Contains(strings.Fields(tt.bad), name) {
						m.connects, m.refuses = time.Millisecond, func() error { return refused }
					} else if strings.HasSuffix(tt.bad, " done") {
						m.runs, m.profile, m.boots, m.valid[toplevel] = toplevel, toplevel, toplevel, true
					}
				}
				got := s.run(t, t.Context(), toplevel, "a b c d e f", func(f *Fleet) { f.Rollout = tt.policy })
				if diff := cmp.Diff(tt.want, got.verdicts()); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s", diff)
				}
				for _, r := range got.results {
					if r.Verdict == verdict.NotStarted && !strings.Contains(r.Reason, "the host was not changed") && (r.From != nil || r.To != nil) {
						t.Errorf("%s was not begun, and goes from %+v to %+v", r.Node, r.From, r.To)
					}
				}
				if tt.reason != "" && got.reason("f") != tt.reason {
					t.Errorf("f: %q, want %q", got.reason("f"), tt.reason)
				}
				if tt.contact != "" {
					for _, call := range s.calls {
						if name, _, _ := strings.Cut(call, " "); !slices.Contains(strings.Fields(tt.contact), name) {
							t.Errorf("%s, but only %s may be contacted", call, tt.contact)
						}
					}
				}
			})
		})
	}
}

// Several nodes at once, no more than told; those in flight end when a rule stops the rest.
// What is known of a node before anything begins is told, whatever stops the run.
func TestStopRulesHideNoFailure(t *testing.T) {
	toplevel := system(t, "new")
	for _, strategy := range rollout.Strategies() {
		synctest.Test(t, func(t *testing.T) {
			s := &site{}
			for _, name := range []string{"a", "b", "c", "d"} {
				s.add(name)
			}
			f := &Fleet{Limits: DefaultLimits(), Open: s.connect, Emit: func(report.Record) {}}
			f.Rollout = rollout.Policy{Strategy: strategy, MaxFailures: limit("0")}
			nodes := []plan.Node{{Name: "a", EvalError: "boom"}, {Name: "b", Toplevel: toplevel}, {Name: "c", EvalError: "boom"}, {Name: "d", Toplevel: toplevel}}
			got := fleetRun{results: f.Run(t.Context(), nodes, map[string]error{"d": errors.New("exit code 3")})}
			if want := "a eval-failed, b not-started, c eval-failed, d build-failed"; got.verdicts() != want || got.reason("c") != "boom" {
				t.Errorf("%s: %s, want %s", strategy, got.verdicts(), want)
			}
		})
	}
}

func TestParallel(t *testing.T) {
	toplevel := system(t, "new")
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		for i, name := range strings.Fields(names(8)) {
			s.add(name).copies = time.Duration(i+1) * time.Second
		}
		s.nodes["n00"].loaderFails = true
		copying, most := 0, 0
		got := s.run(t, t.Context(), toplevel, names(8), func(f *Fleet) {
			f.Rollout = rollout.Policy{Parallel: 3, MaxFailures: limit("0")}
			emit := f.Emit
			f.Emit = func(r report.Record) {
				emit(r)
				if r.Announce != nil {
					copying++
					most = max(most, copying)
				}
				if r.Phase != nil && r.Phase.Name == report.Finalize {
					copying--
				}
			}
		})
		want := "n00 unfinalized, n01 switched, n02 switched, n03 not-started, n04 not-started, n05 not-started, n06 not-started, n07 not-started"
		if diff := cmp.Diff(want, got.verdicts()); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		if most != 3 {
			t.Errorf("%d nodes were under way at once, want 3", most)
		}
	})
}

// In lockstep a phase is over on every node before the next begins on any; who fails drops out.
func TestLockstep(t *testing.T) {
	toplevel := system(t, "new")
	for _, atOnce := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			s := &site{}
			for i, name := range strings.Fields("a b c d") {
				s.add(name).copies = time.Duration(4-i) * time.Second
			}
			s.nodes["b"].refuses = func() error { return refused }
			s.nodes["c"].loginFails = true
			got := s.run(t, t.Context(), toplevel, "a b c d", func(f *Fleet) {
				f.Rollout = rollout.Policy{Strategy: rollout.Lockstep, Parallel: atOnce}
			})
			if want := "a switched, b unreachable, c no-login, d switched"; got.verdicts() != want {
				t.Errorf("%s, want %s", got.verdicts(), want)
			}
			order := []report.PhaseName{report.Connect, report.Probe, report.Copy, report.Switch, report.Finalize}
			at := 0
			for _, r := range got.records {
				if r.Phase == nil || r.Phase.Node == "" {
					continue
				}
				i := slices.Index(order, r.Phase.Name)
				if i < at {
					t.Errorf("%s of %s came after %s of another node", r.Phase.Name, r.Phase.Node, order[at])
				}
				at = i
			}
			if atOnce == 1 {
				want := "+a +b +c +d a.connect b.connect c.connect d.connect a.probe c.probe d.probe .probe " +
					"a.copy c.copy d.copy a.switch c.switch d.switch a.finalize d.finalize -a -b -c -d"
				if diff := cmp.Diff(want, got.shown()); diff != "" {
					t.Errorf("records (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A rule that breaks between two phases of a lockstep says how far each node came.
func TestLockstepStopsBetweenPhases(t *testing.T) {
	toplevel := system(t, "new")
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		s.add("a")
		s.add("b").loginFails = true
		got := s.run(t, t.Context(), toplevel, "a b", func(f *Fleet) {
			f.Rollout = rollout.Policy{Strategy: rollout.Lockstep, MaxFailures: limit("0")}
		})
		if want := "a unfinalized, b no-login"; got.verdicts() != want {
			t.Errorf("%s, want %s", got.verdicts(), want)
		}
		if want := "--max-failures 0: 1 of 2 nodes have failed (b); the boot entry was not made"; got.reason("a") != want {
			t.Errorf("%q, want %q", got.reason("a"), want)
		}
		if s.nodes["a"].boots != "/old" {
			t.Error("the boot entry was made in spite of the rule")
		}
	})
}

// In lockstep a long phase of others makes a look old, too. What has become of the
// closure meanwhile is found out.
func TestLockstepLooksAgain(t *testing.T) {
	toplevel := system(t, "new")
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		s.add("a").switches = time.Hour
		second := s.add("b")
		second.valid[toplevel] = true
		got := s.run(t, t.Context(), toplevel, "a b", func(f *Fleet) {
			f.Rollout.Strategy = rollout.Lockstep
			emit := f.Emit
			f.Emit = func(r report.Record) {
				emit(r)
				if r.Phase != nil && r.Phase.Node == "a" && r.Phase.Name == report.Switch {
					delete(second.valid, toplevel)
				}
			}
		})
		if want := "a switched, b switched"; got.verdicts() != want {
			t.Fatalf("%s, want %s", got.verdicts(), want)
		}
		if want := "b.probe b.copy b.switch"; !strings.Contains(got.shown(), want) {
			t.Errorf("the records are %s, want %s in them", got.shown(), want)
		}
	})
}

func TestPause(t *testing.T) {
	toplevel := system(t, "new")
	for _, tt := range []struct {
		name      string
		policy    rollout.Policy
		interrupt time.Duration // 0: not
		took      time.Duration
		want      string
	}{
		{"between nodes", rollout.Policy{Pause: time.Minute}, 0, 2 * time.Minute, "a switched, b switched, c switched"},
		{"between batches", rollout.Policy{Pause: time.Minute, Batch: 2}, 0, time.Minute, "a switched, b switched, c switched"},
		{"after canaries", rollout.Policy{Pause: time.Hour, Canary: 1, Parallel: 2}, 0, time.Hour, "a switched, b switched, c switched"},
		{"interrupted", rollout.Policy{Pause: time.Hour, Canary: 1}, time.Minute, time.Minute, "a switched, b not-started, c not-started"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{}
				for _, name := range strings.Fields("a b c") {
					s.add(name)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.interrupt > 0 {
					time.AfterFunc(tt.interrupt, cancel)
				}
				began := time.Now()
				got := s.run(t, ctx, toplevel, "a b c", func(f *Fleet) { f.Rollout = tt.policy })
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				if got.verdicts() != tt.want {
					t.Errorf("%s, want %s", got.verdicts(), tt.want)
				}
				said := false
				for _, r := range got.records {
					said = said || r.Progress != nil && strings.Contains(r.Progress.Text, "(--pause)")
				}
				if !said {
					t.Error("the pause is not named")
				}
				if tt.interrupt > 0 && got.reason("b") != "the run was interrupted" {
					t.Errorf("b: %q", got.reason("b"))
				}
			})
		})
	}
}

// An interrupt ends looks that are under way, and leaves nothing open.
func TestInterruptedAhead(t *testing.T) {
	toplevel := system(t, "new")
	for _, strategy := range rollout.Strategies() {
		synctest.Test(t, func(t *testing.T) {
			s := &site{}
			s.add("a").copies = time.Second
			s.add("b").connects = time.Hour
			s.add("c")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Second/2, cancel)
			got := s.run(t, ctx, toplevel, "a b c", func(f *Fleet) {
				f.Rollout.Strategy = strategy
				if strategy == rollout.Parallel {
					f.Rollout.Parallel = 2
				}
			})
			for _, r := range got.results {
				if r.Verdict != verdict.NotStarted || !strings.Contains(r.Reason, "interrupted") {
					t.Errorf("%s: %s is %s (%s)", strategy, r.Node, r.Verdict, r.Reason)
				}
			}
		})
	}
}

// Of two nodes that lead to one machine the first of the list has it, however fast the
// other one answers.
func TestTwinsLookedAtSideBySide(t *testing.T) {
	toplevel := system(t, "new")
	for _, strategy := range []rollout.Strategy{rollout.Serial, rollout.Lockstep} {
		synctest.Test(t, func(t *testing.T) {
			s := &site{}
			s.add("a").connects = time.Second
			s.add("b")
			s.nodes["a"].id, s.nodes["b"].id = "same", "same"
			got := s.run(t, t.Context(), toplevel, "a b", func(f *Fleet) { f.Rollout.Strategy = strategy })
			if want := "a switched, b wrong-host"; got.verdicts() != want {
				t.Errorf("%s: %s, want %s", strategy, got.verdicts(), want)
			}
		})
	}
	// At once, one of them goes on, and one alone.
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		s.add("a").connects = time.Second
		s.add("b").copies = time.Minute
		s.nodes["a"].id, s.nodes["b"].id = "same", "same"
		got := s.run(t, t.Context(), toplevel, "a b", func(f *Fleet) { f.Rollout.Parallel = 2 })
		if want := "a wrong-host, b switched"; got.verdicts() != want {
			t.Errorf("%s, want %s", got.verdicts(), want)
		}
	})
}

// Going back, the host chooses its generation at each look.
func TestRollbackLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		s.add("a")
		var asked []string
		second := &chooses{member: s.add("b"), asked: &asked}
		f := &Fleet{Limits: DefaultLimits(), Rollback: &Rollback{}, Emit: func(r report.Record) {
			if r.Announce != nil {
				time.Sleep(time.Hour)
			}
		}}
		f.Open = func(context.Context, plan.Node) (Transport, error) {
			s.mu.Lock()
			s.open++
			s.mu.Unlock()
			return second, nil
		}
		f.Run(t.Context(), []plan.Node{{Name: "b"}}, nil)
		if len(asked) < 2 || asked[1] != "chooses" {
			t.Errorf("the questions were %q, want the host to choose again", asked)
		}
	})
}

// chooses tells which kind of question each look was.
type chooses struct {
	*member
	asked *[]string
}

func (c *chooses) Run(_ context.Context, s ssh.Script) error {
	kind := "told"
	if strings.Contains(s.Text, "choose_generation") {
		kind = "chooses"
	}
	*c.asked = append(*c.asked, kind)
	time.Sleep(time.Second)
	_, err := s.Output.Write([]byte("chosen 3 /earlier\nvalid yes\n" + c.observation("/earlier")))
	if len(*c.asked) > 3 {
		return errors.New("asked too often")
	}
	return err
}

// Of nodes with one address the first of the list has the machine, also side by side,
// where the other would else be contacted first at times.
func TestTwinsSideBySide(t *testing.T) {
	toplevel := system(t, "new")
	for _, tt := range []struct {
		policy rollout.Policy
		want   string
	}{
		{rollout.Policy{Parallel: 3}, "a switched, b wrong-host, c switched"},
		{rollout.Policy{}, "a switched, b switched, c switched"}, // machine ids decide
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &site{}
			for _, name := range []string{"a", "b", "c"} {
				s.add(name)
			}
			got := s.run(t, t.Context(), toplevel, "a b c", func(f *Fleet) {
				f.Rollout = tt.policy
				f.Identities = map[string]*ssh.Identity{"a": {}, "b": {Twin: "a"}, "c": {Twin: "gone"}}
			})
			if got.verdicts() != tt.want {
				t.Errorf("%+v: %s, want %s", tt.policy, got.verdicts(), tt.want)
			}
			if tt.policy.Parallel > 1 && s.has("b connect") {
				t.Error("the twin was contacted")
			}
		})
	}
}
