package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWaves(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy Policy
		total  int
		want   []Wave
	}{
		{"nothing to do", Policy{Canary: 1, Batch: 2, Pause: time.Second}, 0, nil},
		{"all at once", Policy{}, 5, []Wave{{0, 5, false}}},
		{"parallel", Policy{Parallel: 3}, 5, []Wave{{0, 5, false}}},
		{"batches, the last one short", Policy{Batch: 2}, 5, []Wave{{0, 2, false}, {2, 4, false}, {4, 5, false}}},
		{"a batch of more than all", Policy{Batch: 9}, 5, []Wave{{0, 5, false}}},
		{"canaries, then the rest", Policy{Canary: 2}, 5, []Wave{{0, 2, false}, {2, 5, false}}},
		{"all are canaries", Policy{Canary: 5, Pause: time.Second}, 5, []Wave{{0, 5, false}}},
		{"more canaries than nodes", Policy{Canary: 7}, 5, []Wave{{0, 5, false}}},
		{"canaries and batches", Policy{Canary: 1, Batch: 3}, 6, []Wave{{0, 1, false}, {1, 4, false}, {4, 6, false}}},
		{"canaries larger than batches", Policy{Canary: 3, Batch: 1}, 5, []Wave{{0, 3, false}, {3, 4, false}, {4, 5, false}}},
		{"a pause after the canaries alone", Policy{Canary: 1, Pause: time.Second}, 3, []Wave{{0, 1, false}, {1, 3, true}}},
		{"a pause between batches", Policy{Batch: 2, Pause: time.Second}, 4, []Wave{{0, 2, false}, {2, 4, true}}},
		{"a pause between nodes", Policy{Pause: time.Second}, 3, []Wave{{0, 1, false}, {1, 2, true}, {2, 3, true}}},
	} {
		if diff := cmp.Diff(tt.want, tt.policy.Waves(tt.total)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Whatever the policy, every node is in one wave, in its place.
func TestWavesHaveEveryNodeOnce(t *testing.T) {
	for total := range 9 {
		for canary := range 10 {
			for batch := range 10 {
				for _, pause := range []time.Duration{0, 1} {
					next := 0
					for _, w := range (Policy{Canary: canary, Batch: batch, Pause: pause}).Waves(total) {
						if w.From != next || w.To <= w.From || w.To > total || w.Paused != (w.From > 0 && pause > 0) {
							t.Fatalf("%d nodes, canary %d, batch %d: wave %+v after node %d", total, canary, batch, w, next)
						}
						next = w.To
					}
					if next != total {
						t.Fatalf("%d nodes, canary %d, batch %d: the waves end at %d", total, canary, batch, next)
					}
				}
			}
		}
	}
}

func TestStop(t *testing.T) {
	limit := func(text string) Limit {
		var l Limit
		if err := l.Set(text); err != nil {
			t.Fatal(err)
		}
		return l
	}
	good := func(place int, node string) Ended { return Ended{Node: node, Place: place, Verdict: "switched"} }
	bad := func(place int, node string) Ended {
		return Ended{Node: node, Place: place, Failed: true, Verdict: "degraded"}
	}
	for _, tt := range []struct {
		name   string
		policy Policy
		total  int
		ended  []Ended
		want   string
	}{
		{"no rule", Policy{}, 3, []Ended{bad(0, "a"), bad(1, "b"), bad(2, "c")}, ""},
		{"nothing has ended", Policy{MaxFailures: limit("0"), Canary: 1}, 3, nil, ""},
		{"as many as may", Policy{MaxFailures: limit("1")}, 3, []Ended{bad(0, "a"), good(1, "b")}, ""},
		{"one more than may", Policy{MaxFailures: limit("1")}, 9, []Ended{bad(4, "e"), bad(0, "a")}, "--max-failures 1: 2 of 9 nodes have failed (a, e)"},
		{"none may", Policy{MaxFailures: limit("0")}, 3, []Ended{good(0, "a"), bad(1, "b")}, "--max-failures 0: 1 of 3 nodes have failed (b)"},
		{"a part", Policy{MaxFailures: limit("10%")}, 20, []Ended{bad(0, "a"), bad(1, "b")}, ""},
		{"more than the part", Policy{MaxFailures: limit("10%")}, 20, []Ended{bad(0, "a"), bad(1, "b"), bad(2, "c")}, "--max-failures 10%: 3 of 20 nodes have failed (a, b, c)"},
		{"a part of less than one node", Policy{MaxFailures: limit("10%")}, 3, []Ended{bad(0, "a")}, "--max-failures 10%: 1 of 3 nodes have failed (a)"},
		{"none in percent", Policy{MaxFailures: limit("0%")}, 3, []Ended{bad(0, "a")}, "--max-failures 0%: 1 of 3 nodes have failed (a)"},
		{"all may", Policy{MaxFailures: limit("100%")}, 2, []Ended{bad(0, "a"), bad(1, "b")}, ""},
		{"many are not all named", Policy{MaxFailures: limit("0")}, 8, []Ended{bad(0, "a"), bad(1, "b"), bad(2, "c"), bad(3, "d"), bad(4, "e"), bad(5, "f")}, "--max-failures 0: 6 of 8 nodes have failed (a, b, c, d, e, …)"},
		{"a canary", Policy{Canary: 2}, 9, []Ended{good(0, "a"), bad(1, "b")}, "--canary 2: the canary b is degraded"},
		{"a canary, whatever may fail", Policy{Canary: 1, MaxFailures: limit("5")}, 9, []Ended{bad(0, "a")}, "--canary 1: the canary a is degraded"},
		{"no canary", Policy{Canary: 1}, 9, []Ended{good(0, "a"), bad(1, "b")}, ""},
	} {
		if got := tt.policy.Stop(tt.total, tt.ended); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy Policy
		want   []string // words of the error; none when there is none
		chosen Strategy
	}{
		{"nothing said", Policy{}, nil, Serial},
		{"one at a time", Policy{Parallel: 1}, nil, Serial},
		{"several", Policy{Parallel: 4}, nil, Parallel},
		{"lockstep, one at a time", Policy{Strategy: Lockstep}, nil, Lockstep},
		{"lockstep, several", Policy{Strategy: Lockstep, Parallel: 4}, nil, Lockstep},
		{"everything", Policy{Parallel: 4, Canary: 1, Batch: 4, Pause: 1}, nil, Parallel},
		{"serial with a pause", Policy{Pause: 1}, nil, Serial},
		{"lockstep with a pause after canaries", Policy{Strategy: Lockstep, Canary: 1, Pause: 1}, nil, Lockstep},
		{"less than one", Policy{Parallel: -1}, []string{"--parallel -1"}, Serial},
		{"canaries below zero", Policy{Canary: -1}, []string{"--canary -1"}, Serial},
		{"a batch below zero", Policy{Batch: -2}, []string{"--batch -2"}, Serial},
		{"a pause below zero", Policy{Pause: -1}, []string{"--pause"}, Serial},
		{"serial and several", Policy{Strategy: Serial, Parallel: 2}, []string{"--strategy serial", "--parallel 2"}, Serial},
		{"parallel and one", Policy{Strategy: Parallel}, []string{"--strategy parallel", "--parallel"}, Parallel},
		{"a batch of less than go at once", Policy{Parallel: 8, Batch: 4}, []string{"--batch 4", "--parallel 8"}, Parallel},
		{"nothing to pause between", Policy{Parallel: 8, Pause: 1}, []string{"--pause", "--batch or --canary"}, Parallel},
		{"nothing to pause between in lockstep", Policy{Strategy: Lockstep, Pause: 1}, []string{"--pause"}, Lockstep},
	} {
		err := tt.policy.Check()
		if (err != nil) != (tt.want != nil) {
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.want)
		}
		for _, words := range tt.want {
			if err != nil && !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v, want %q in it", tt.name, err, words)
			}
		}
		if got := tt.policy.Chosen(); got != tt.chosen {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.chosen)
		}
	}
}

func TestLimit(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Limit
		ok   bool
	}{
		{"0", Limit{true, 0, false}, true},
		{"12", Limit{true, 12, false}, true},
		{"0%", Limit{true, 0, true}, true},
		{"100%", Limit{true, 100, true}, true},
		{"101%", Limit{}, false},
		{"-1", Limit{}, false},
		{"+1", Limit{}, false},
		{"1.5", Limit{}, false},
		{"5 %", Limit{}, false},
		{"%", Limit{}, false},
		{"", Limit{}, false},
		{"many", Limit{}, false},
		{"99999999999", Limit{}, false},
	} {
		var got Limit
		if err := got.Set(tt.text); (err == nil) != tt.ok {
			t.Errorf("%q: %v, want ok %v", tt.text, err, tt.ok)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
		if tt.ok && got.String() != tt.text {
			t.Errorf("%q comes back as %q", tt.text, got.String())
		}
	}
}

func FuzzLimit(f *testing.F) {
	f.Add("10%")
	f.Add("3")
	f.Fuzz(func(t *testing.T, text string) {
		var l, again Limit
		if l.Set(text) != nil {
			return
		}
		if err := again.Set(l.String()); err != nil || again != l {
			t.Errorf("%q is %+v, and its text %q is %+v, %v", text, l, l.String(), again, err)
		}
	})
}

func TestStrategy(t *testing.T) {
	var s Strategy
	for _, want := range Strategies() {
		if err := s.Set(string(want)); err != nil || s != want {
			t.Errorf("%s: %s, %v", want, s, err)
		}
	}
	if err := s.Set("all"); err == nil || !strings.Contains(err.Error(), "lockstep") {
		t.Errorf("an unknown strategy: %v", err)
	}
}
