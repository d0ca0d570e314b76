package flake

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/google/go-cmp/cmp"
)

// scripted answers one call after the other, and fails on one too many.
type scripted struct {
	t     *testing.T
	steps []step
	calls []child.Command
}

type step struct {
	stdout string
	err    error
}

func (s *scripted) Run(ctx context.Context, c child.Command) (child.Result, error) {
	s.calls = append(s.calls, c)
	if len(s.calls) > len(s.steps) {
		s.t.Fatalf("one call too many: %s %q", c.Name, c.Args)
	}
	next := s.steps[len(s.calls)-1]
	return child.Result{Stdout: []byte(next.stdout)}, next.err
}

const head = `"version":1,"ordered":true,"problems":[],"unmatched":[],"defaults":{}`

func said(stderr string) error {
	return &child.Error{Subject: "nix eval", ExitCode: 1, Stderr: stderr}
}

func TestEvaluateCommandLine(t *testing.T) {
	run := &scripted{t: t, steps: []step{{stdout: `{` + head + `,"nodes":[{"name":"web","selected":true}]}`}}}
	_, err := Evaluator{Runner: run}.Evaluate(context.Background(), Request{
		Ref: ".#nodes", Impure: true, ShowTrace: true,
		Options: [][2]string{{"cores", "1"}}, Args: []string{"--override-input", "a", "b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"eval", "--json", "--extra-experimental-features", "nix-command flakes",
		"--impure", "--show-trace", "--option", "cores", "1",
		"--apply", expression(forceCaught, Request{}), ".#nodes", "--override-input", "a", "b",
	}
	if diff := cmp.Diff(want, run.calls[0].Args); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Nix 2.8 prints the beginning of the answer before it fails.
func TestOutputOfAFailedEvaluationIsNotRead(t *testing.T) {
	run := &scripted{t: t, steps: []step{
		{stdout: `{` + head + `,"nodes":[{"name":"web","selected":true}]}`, err: said("error: aborted")},
		{stdout: `{` + head + `,"nodes":[{"name":"db","selected":true}]}`},
		{err: said("error: db aborted")},
	}}
	m, err := Evaluator{Runner: run}.Evaluate(context.Background(), Request{Ref: ".#nodes"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{{Name: "db", Selected: true, EvalError: "error: db aborted"}}
	if diff := cmp.Diff(want, m.Nodes); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestEvaluateErrors(t *testing.T) {
	for _, test := range []struct {
		name  string
		ref   string
		steps []step
		want  string
	}{
		{"no reference", "", nil, "no flake reference"},
		{"a flag as reference", "--impure", nil, "no flake reference"},
		{"no JSON", ".#nodes", []step{{stdout: "warning: x"}}, "evaluating .#nodes: the answer of nix eval: line 1, column 1: not JSON"},
		{"cut off", ".#nodes", []step{{stdout: `{"version":1,`}}, "not JSON"},
		{"map error", ".#nodes", []step{{err: said("error: a")}, {err: said("error: b")}}, "evaluating .#nodes: nix eval: error: b"},
		{
			"wrong shapes and problems together", ".#nodes",
			[]step{{stdout: `{"version":1,"ordered":true,"defaults":{"ssh":1},"unmatched":["wbe"],"nodes":[{"name":"web","selected":true,"ssh":{"x":null}}],
				"problems":[{"path":"nodes.db.toplevel","text":"found a list"}]}`}},
			"the node map .#nodes can't be used:\n" +
				"  defaults.ssh: found the number 1; wanted an object with fields\n" +
				"  nodes.web.ssh.x: unknown field \"x\" (known: host, hostKey, key, options, user)\n" +
				"  nodes.db.toplevel: found a list\n" +
				"  \"wbe\" selects no node; did you mean \"web\"?",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := &scripted{t: t, steps: test.steps}
			_, err := Evaluator{Runner: run}.Evaluate(context.Background(), Request{Ref: test.ref})
			var bad *MapError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want a MapError", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got\n%v\nwant\n%s", err, test.want)
			}
			if len(run.calls) != len(test.steps) {
				t.Errorf("%d calls, want %d", len(run.calls), len(test.steps))
			}
		})
	}
}

// waiting never answers by itself.
type waiting struct{}

func (waiting) Run(ctx context.Context, c child.Command) (child.Result, error) {
	<-ctx.Done()
	return child.Result{}, &child.Error{Subject: c.Subject, ExitCode: -1, Cause: context.Cause(ctx)}
}

func TestLimitsNameTheStep(t *testing.T) {
	_, err := Evaluator{Runner: waiting{}, Limit: time.Nanosecond}.Evaluate(context.Background(), Request{Ref: ".#nodes"})
	if want := "evaluating .#nodes: nix eval: evaluation took longer than 1ns"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = Builder{Runner: waiting{}, Limit: time.Nanosecond}.Build(context.Background(), []Node{{Name: "a", Toplevel: "/nix/store/a"}})
	if want := "nix-store --realise: building took longer than 1ns"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestACancelledRunIsNoNodesFault(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := (Evaluator{Runner: waiting{}}).Evaluate(ctx, Request{Ref: ".#nodes"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Evaluate: got %v", err)
	}
	if _, err := (Builder{Runner: waiting{}}).Build(ctx, []Node{{Name: "a", Toplevel: "/nix/store/a"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Build: got %v", err)
	}
}

func TestWithoutOwnFrames(t *testing.T) {
	const nix226 = `error:
       … while evaluating attribute 'nodes'
         at «string»:407:3:
          406|       fields [ ] value.defaults;
          407|   nodes = map (entry: entry.node) finished;
             |   ^

       … while evaluating list element at index 2
         at «string»:407:3:
          406|       fields [ ] value.defaults;

       … while calling the 'throw' builtin
         at /etc/flake/flake.nix:3:5:
            2|
            3|   throw "cee"

       error: cee`
	const want = `error:

       … while calling the 'throw' builtin
         at /etc/flake/flake.nix:3:5:
            2|
            3|   throw "cee"

       error: cee`
	if diff := cmp.Diff(want, withoutOwnFrames(nix226)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	const alone = "error:\n       … while evaluating attribute 'nodes'\n         at «string»:407:3:\n          406|   x\n\n" +
		"       (stack trace truncated; use '--show-trace' to show the full, detailed trace)\n\n       error: no such\n       thing"
	if diff := cmp.Diff("error: no such\nthing", withoutOwnFrames(alone)); diff != "" {
		t.Errorf("with no frame of the operator's: -want +got\n%s", diff)
	}
	for _, text := range []string{"", "error: a", "error: a\n       b\n\n       at «string»"} {
		if got := withoutOwnFrames(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestSelectionThatIsTooLong(t *testing.T) {
	r := Request{Ref: ".#nodes"}
	for range 4000 {
		r.Include = append(r.Include, exactly("a-name-of-some-length-that-nobody-would-choose"))
	}
	run := &scripted{t: t}
	_, err := Evaluator{Runner: run}.Evaluate(context.Background(), r)
	const want = "evaluating .#nodes: the selection of 4000 names and patterns is too long for Nix's command line; select with a glob or a tag"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func FuzzParagraphs(f *testing.F) {
	f.Add("error: builder for '/nix/store/a.drv' failed;\n       > x\nbuilding\nerror: build of 'a' failed")
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range paragraphs(text) {
			if !strings.HasPrefix(p, "error:") || strings.HasPrefix(p, "error: build of '") {
				t.Errorf("%q has the paragraph %q", text, p)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{` + head + `,"nodes":[{"name":"web","selected":true,"toplevel":"/nix/store/x"}]}`))
	f.Add([]byte(`{` + head + `,"nodes":[{"name":"web"},{"name":5}]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		doc, err := decode("f", answer)
		if err == nil {
			for _, n := range doc.Nodes {
				if n.Name == "" {
					t.Errorf("%q has a node without a name", answer)
				}
			}
		} else if err.Error() == "" {
			t.Errorf("%q: an error without words", answer)
		}
	})
}
