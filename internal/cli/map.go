package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/history"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// mapFlags are the flags of every verb that reads a node map.
type mapFlags struct {
	json, noProgress, impure, showTrace bool
	noEvalCache                         bool
	optionItems                         []string
	on, exclude, storePaths             []string
	clientConfig                        string
	evalTimeout                         time.Duration
	identities                          identityFlags
	combined                            bool
	// retry are the runs that tell which nodes are left to do; nil where all are to be done.
	retry func() ([]history.Run, error)
	// notes are what there is to say about the selection.
	notes []string
}

// add adds the flags; jsonMeaning says what --json prints.
func (f *mapFlags) add(flags *pflag.FlagSet, jsonMeaning string) {
	flags.BoolVar(&f.json, "json", false, jsonMeaning)
	flags.StringArrayVar(&f.on, "on", nil, "only these nodes, `NAME,GLOB,@TAG`: @a&@b is what is both, - reads names from standard input; may be repeated. The order stays the map's")
	flags.StringArrayVar(&f.exclude, "exclude", nil, "all but these nodes, `NAME,GLOB,@TAG`, as for --on")
	flags.BoolVar(&f.combined, "combined", false, "in place of the nodes, the map's one combined system of all of them, on the host of the first node")
	flags.BoolVar(&f.noProgress, "no-progress", false, "leave out what Nix and the hosts print meanwhile")
	flags.BoolVar(&f.impure, "impure", false, "let the evaluation read the deployer's environment (as nix)")
	flags.BoolVar(&f.noEvalCache, "no-eval-cache", false, "evaluate even what an earlier run has evaluated, and keep nothing for later runs")
	flags.BoolVar(&f.showTrace, "show-trace", false, "show Nix's trace of evaluation errors (as nix)")
	flags.StringArrayVar(&f.optionItems, "option", nil, "a setting of Nix, `NAME VALUE` (as nix) or NAME=VALUE; may be repeated")
	flags.StringVarP(&f.clientConfig, "ssh-config", "F", "", "ssh client configuration `FILE` for every connection, in place of "+settings.KeyConfig)
	flags.DurationVar(&f.evalTimeout, "eval-timeout", flake.EvaluationLimit, "how long the evaluation may take")
	f.identities.add(flags)
}

// check refuses values that make no sense, before anything is started.
func (f *mapFlags) check() error {
	if f.evalTimeout <= 0 {
		return usageError{fmt.Errorf("--eval-timeout %v: a duration above zero is wanted, such as 30s", f.evalTimeout)}
	}
	return f.identities.check()
}

// loaded is a node map, ready for work.
type loaded struct {
	// nodes are those that were selected and evaluate.
	nodes []flake.Node
	work  plan.Plan
	// clientConfig is the path of the operator's client configuration; empty when none.
	clientConfig string
	// options are settings of Nix.
	options [][2]string
}

// load evaluates the map and layers the settings. No host is contacted.
func (f *mapFlags) load(ctx context.Context, p Process, out *output, r flake.Request) (loaded, error) {
	var m loaded
	var err error
	if m.options, err = f.nixOptions(); err != nil {
		return m, err
	}
	if err := f.selection(ctx, p, &r); err != nil {
		return m, err
	}
	env, err := settings.ParseEnvironment(p.Env)
	if err != nil {
		return m, err
	}
	if f.clientConfig != "" {
		env.Config = f.clientConfig
	}
	systems, err := f.given(ctx, p)
	if err != nil {
		return m, err
	}
	r.Options, r.Impure, r.ShowTrace = m.options, f.impure, f.showTrace
	if r.Combined = f.combined; r.Combined {
		switch {
		case r.Include != nil || r.Exclude != nil:
			return m, usageError{errors.New("--combined with a selection of nodes: one system of all of them goes to the host of the first")}
		case len(systems) > 0:
			return m, usageError{errors.New("--combined with --store-path: the one system is the map's")}
		case r.Ref == "":
			return m, usageError{errors.New("--combined without a flake reference: the environment's map has no system")}
		case f.retry != nil:
			return m, usageError{errors.New("--combined with --retry-failed: there is one host; run it again without")}
		}
	}
	if f.retry != nil {
		if err := f.narrow(ctx, p, out, env, &r, systems); err != nil {
			return m, err
		}
	}
	if m.nodes, m.work, err = f.plan(ctx, p, out, env, r, systems); err != nil {
		return m, err
	}
	m.clientConfig, err = readableConfig(p, m.work.Config.V)
	return m, err
}

// ready is a map with the ways to its nodes, in the run's private directory.
type ready struct {
	loaded
	identities map[string]*ssh.Identity
	dir        *ssh.RunDir
}

// ready loads the map and prepares the way to each node. No host is contacted.
// The caller must close the directory.
func (f *mapFlags) ready(ctx context.Context, p Process, out *output, r flake.Request) (ready, error) {
	m, err := f.load(ctx, p, out, r)
	if err != nil {
		return ready{}, err
	}
	return f.ways(ctx, p, m)
}

// ways prepares the way to each node of a map. No host is contacted. The caller must
// close the directory.
func (f *mapFlags) ways(ctx context.Context, p Process, m loaded) (ready, error) {
	dir, err := ssh.NewRunDir(p.getenv)
	if err != nil {
		return ready{}, err
	}
	identities, err := f.identities.prepare(ctx, p, dir, m.work.Nodes, m.clientConfig)
	if err != nil {
		_ = dir.Close()
		return ready{}, err
	}
	return ready{loaded: m, identities: identities, dir: dir}, nil
}

// plan gets the map and layers the settings. Any error here is one of the map or
// the settings: no host was contacted.
func (f *mapFlags) plan(ctx context.Context, p Process, out *output, env settings.Environment, r flake.Request, systems []given) ([]flake.Node, plan.Plan, error) {
	m, err := f.nodeMap(ctx, p, out, env, r, systems)
	if err != nil {
		return nil, plan.Plan{}, err
	}
	work, err := plan.Make(m, env)
	if err != nil {
		return nil, plan.Plan{}, err
	}
	planned := &report.Plan{Notes: slices.Concat(f.notes, unused(m, systems), work.Notes)}
	for _, n := range work.Nodes {
		planned.Nodes = append(planned.Nodes, n.Name)
	}
	out.emit(report.Record{Plan: planned})
	nodes := slices.DeleteFunc(slices.Clone(m.Nodes), func(n flake.Node) bool { return !n.Selected || n.EvalError != "" })
	return nodes, work, nil
}

// nodeMap is the flake's map, with the systems that were given in place of its own,
// or without a flake the environment's.
func (f *mapFlags) nodeMap(ctx context.Context, p Process, out *output, env settings.Environment, r flake.Request, systems []given) (flake.Map, error) {
	if r.Ref == "" {
		return roster(env, systems, r.Include, r.Exclude)
	}
	for _, g := range systems {
		r.Given = append(r.Given, g.node)
	}
	began := time.Now()
	m, err := f.evaluate(ctx, p, out, r)
	if err != nil {
		return m, err
	}
	phase := &report.Phase{
		Time: time.Now(), Name: report.Evaluate, OK: true, Seconds: time.Since(began).Seconds(),
		Cache: f.cacheUse(m.Evaluation), Notes: m.Evaluation.Warnings,
	}
	if m.Evaluation.Cached {
		phase.Detail = "evaluation: cached"
	}
	out.emit(report.Record{Phase: phase})
	return m, override(m, systems)
}

// evaluate evaluates a flake's map.
func (f *mapFlags) evaluate(ctx context.Context, p Process, out *output, r flake.Request) (flake.Map, error) {
	progress := out.lines(report.Evaluate)
	// Errors come back as values, each once; evaluating again repeats them and
	// all other lines here.
	show, inError, shown := progress.Line, false, map[string]bool{}
	progress.Line = func(text string) {
		inError = strings.HasPrefix(text, "error:") || inError && (text == "" || strings.HasPrefix(text, " "))
		if f.showTrace || !inError && !shown[text] {
			show(text)
		}
		shown[text] = true
	}
	r.Stderr = progress
	m, err := flake.Evaluator{Runner: p.local(), Limit: f.evalTimeout, Keep: f.keep(p)}.Evaluate(ctx, r)
	progress.Flush()
	return m, err
}

// nixOptions splits NAME=VALUE settings.
func (f *mapFlags) nixOptions() ([][2]string, error) {
	var pairs [][2]string
	for _, item := range f.optionItems {
		name, value, ok := cut(item)
		if !ok {
			return nil, usageError{fmt.Errorf("--option %q: a name and a value are wanted", item)}
		}
		pairs = append(pairs, [2]string{name, value})
	}
	return pairs, nil
}

// readableConfig makes sure that the client configuration can be read, so that
// a node can't silently be reached without it.
func readableConfig(p Process, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if !filepath.IsAbs(path) && p.Dir != "" {
		path = filepath.Join(p.Dir, path)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading the ssh client configuration (%s or --ssh-config): %w", settings.KeyConfig, err)
	}
	return path, file.Close()
}

// refAndNixArgs takes one flake reference; what follows `--` is Nix's.
func refAndNixArgs(cmd *cobra.Command, args []string) error {
	own, nixArgs := args, []string(nil)
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		own, nixArgs = args[:dash], args[dash:]
	}
	if len(own) == 0 && withoutFlake(cmd) {
		if len(nixArgs) > 0 {
			return usageError{fmt.Errorf("%q: arguments for Nix need a flake reference; without one nothing is evaluated", nixArgs)}
		}
		return nil
	}
	if len(own) == 0 {
		return usageError{fmt.Errorf("a flake reference with the node map's attribute is wanted, such as .#nodes")}
	}
	if err := checkRef(cmd, own[0], nixArgs); err != nil || len(own) == 1 {
		return err
	}
	if !strings.Contains(own[1], "#") {
		return usageError{fmt.Errorf("%q behind the flake reference: nodes are selected by --on %s, and arguments for Nix go behind --", own[1], strings.Join(own[1:], ","))}
	}
	return usageError{fmt.Errorf("one flake reference is wanted, not %d: %q (arguments for Nix go behind --)", len(own), own)}
}
