package ssh

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func newGate() *gate { return &gate{in: map[*visit]bool{}, changed: make(chan struct{})} }

func TestGateLetsInSoMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var in []*visit
		for range crowd {
			v, err := g.enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, v)
		}
		late := make(chan *visit)
		go func() {
			v, _ := g.enter(context.WithoutCancel(t.Context()))
			late <- v
		}()
		synctest.Wait()
		select {
		case <-late:
			t.Fatal("one more was let in than may be")
		default:
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.enter(limited); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a login that can't begin in time: %v", err)
		}
		hurried := g.hurry() // waits for nobody
		hurried.leave()
		in[0].leave()
		in = append(in[1:], <-late)
		for _, v := range in {
			if !v.leave() {
				t.Error("a login among others was not told so")
			}
		}
		v, _ := g.enter(t.Context())
		if v.leave() {
			t.Error("a login of which there was no other was taken for one of a crowd")
		}
	})
}

// A login that is tried again because its host may be dead lets the others go first.
func TestGateAlone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		urgent bool
		want   []string
	}{
		{"a second try", false, []string{"entered", "alone"}},
		{"a fresh login", true, []string{"alone", "entered"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				var first []*visit
				for range crowd {
					v, _ := g.enter(t.Context())
					first = append(first, v)
				}
				order := make(chan string, 2)
				stay := func(name string, begin func() (*visit, error)) {
					v, err := begin()
					if err != nil {
						t.Error(err)
						return
					}
					g.mu.Lock()
					beside := len(g.in) - 1
					g.mu.Unlock()
					if name == "alone" && beside > 0 {
						t.Errorf("there are %d beside the one that wants to be alone", beside)
					}
					order <- name
					time.Sleep(time.Second)
					if crowded := v.leave(); name == "alone" && crowded {
						t.Error("somebody came beside the one that wants to be alone")
					}
				}
				ctx := t.Context()
				go stay("alone", func() (*visit, error) { return g.only(ctx, tt.urgent) })
				synctest.Wait()
				go stay("entered", func() (*visit, error) { return g.enter(ctx) })
				synctest.Wait()
				for _, v := range first {
					v.leave()
				}
				time.Sleep(time.Minute)
				if a, b := <-order, <-order; a != tt.want[0] || b != tt.want[1] {
					t.Errorf("%s went before %s, want %v", a, b, tt.want)
				}
			})
		})
	}
}

func TestGateway(t *testing.T) {
	for _, tt := range []struct {
		name string
		id   Identity
		want string
	}{
		{"the host", Identity{Effective: Effective{"hostname": {"web1"}, "port": {"2201"}}}, "web1:2201"},
		{"the first jump host", Identity{Effective: Effective{"hostname": {"web1"}, "port": {"22"}}, Hops: []Hop{{Host: "a", Port: 2}, {Host: "b"}}}, "a:2"},
		{"a proxy's command", Identity{Effective: Effective{"hostname": {"web1"}, "port": {"22"}, "proxycommand": {"tunnel %h"}}}, "tunnel %h"},
		{"no proxy's command", Identity{Effective: Effective{"hostname": {"::1"}, "port": {"22"}, "proxycommand": {"none"}}}, "[::1]:22"},
	} {
		if got := tt.id.gateway(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
