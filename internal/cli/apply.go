package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// applyFlags are the flags of the main verb.
type applyFlags struct {
	json, noProgress, verbose       bool
	impure, showTrace, logs         bool
	options                         []string
	clientConfig                    string
	connectTimeout                  time.Duration
	evalTimeout, buildTimeout       time.Duration
	copyTimeout                     time.Duration
	limits                          deploy.Limits
	goal                            deploy.Goal
	reboot, noCheck, acceptDegraded bool
	confirm                         time.Duration
}

func (f *applyFlags) add(flags *pflag.FlagSet) {
	f.limits = deploy.DefaultLimits()
	f.goal = deploy.GoalSwitch
	flags.Var(&f.goal, "goal", "how far to go: build, push, dry-activate, test, boot or switch")
	flags.BoolVar(&f.reboot, "reboot", false, "reboot each host after its boot entry was made, and wait for it")
	flags.DurationVar(&f.confirm, "confirm", 0, "let a host go back to its old system by itself when no fresh login succeeds for so long after the activation (default: never)")
	flags.BoolVar(&f.noCheck, "no-check", false, "skip the hosts' pre-switch checks and inhibitors")
	flags.BoolVar(&f.acceptDegraded, "accept-degraded", false, "make the boot entry although units have failed")
	flags.BoolVar(&f.json, "json", false, "print the records of the run as JSON lines instead of the table")
	flags.BoolVar(&f.noProgress, "no-progress", false, "leave out what Nix and the hosts print meanwhile")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show how long each phase took")
	flags.BoolVar(&f.impure, "impure", false, "let the evaluation read the deployer's environment (as nix)")
	flags.BoolVar(&f.showTrace, "show-trace", false, "show Nix's trace of evaluation errors (as nix)")
	flags.BoolVarP(&f.logs, "print-build-logs", "L", false, "show builders' output as it comes (as nix)")
	flags.StringArrayVar(&f.options, "option", nil, "a setting of Nix, `NAME VALUE` (as nix) or NAME=VALUE; may be repeated")
	flags.StringVarP(&f.clientConfig, "ssh-config", "F", "", "ssh client configuration for every connection, in place of "+settings.KeyConfig)
	flags.DurationVar(&f.connectTimeout, "connect-timeout", 15*time.Second, "how long each try to connect may take")
	flags.DurationVar(&f.evalTimeout, "eval-timeout", flake.EvaluationLimit, "how long the evaluation may take")
	flags.DurationVar(&f.buildTimeout, "build-timeout", flake.BuildLimit, "how long the build of all systems may take")
	flags.DurationVar(&f.copyTimeout, "copy-timeout", closure.DefaultTimeout, "how long the copy of one closure may take")
	flags.IntVar(&f.limits.LockAttempts, "lock-attempts", f.limits.LockAttempts, "how often a held lock of the host's switch is tried")
	flags.DurationVar(&f.limits.LockInterval, "lock-interval", f.limits.LockInterval, "how long to wait between these tries")
	flags.DurationVar(&f.limits.Settle, "settle", f.limits.Settle, "how long after the activation failed units are looked for again")
	flags.DurationVar(&f.limits.Switch, "switch-timeout", 0, "run time limit of the activation (default: none; in a container "+deploy.ContainerSwitchLimit.String()+")")
	flags.DurationVar(&f.limits.Finalize, "boot-timeout", f.limits.Finalize, "how long the making of the boot entry is waited for")
	flags.DurationVar(&f.limits.Reboot, "reboot-timeout", f.limits.Reboot, "how long a host may take to answer again after a reboot")
	flags.DurationVar(&f.limits.Reconnect, "reconnect-timeout", f.limits.Reconnect, "how long a connection lost during a switch is tried again")
}

// check refuses values that make no sense together, before anything is started.
func (f *applyFlags) check() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
		zero  bool
	}{
		{"connect-timeout", f.connectTimeout, false},
		{"eval-timeout", f.evalTimeout, false},
		{"build-timeout", f.buildTimeout, false},
		{"copy-timeout", f.copyTimeout, false},
		{"lock-interval", f.limits.LockInterval, false},
		{"settle", f.limits.Settle, true},
		{"switch-timeout", f.limits.Switch, true},
		{"boot-timeout", f.limits.Finalize, false},
		{"reconnect-timeout", f.limits.Reconnect, false},
		{"reboot-timeout", f.limits.Reboot, false},
		{"confirm", f.confirm, true},
	} {
		if d.value < 0 || d.value == 0 && !d.zero {
			return usageError{fmt.Errorf("--%s %v: a duration above zero is wanted, such as 30s", d.flag, d.value)}
		}
	}
	switch {
	case f.reboot && f.goal != deploy.GoalBoot && f.goal != deploy.GoalSwitch:
		return usageError{fmt.Errorf("--reboot with --goal %s: only boot and switch make the boot entry that a reboot would start", f.goal)}
	case f.confirm > 0 && f.goal != deploy.GoalTest && f.goal != deploy.GoalSwitch:
		return usageError{fmt.Errorf("--confirm with --goal %s: only test and switch activate anything", f.goal)}
	}
	if f.limits.LockAttempts < 1 {
		return usageError{fmt.Errorf("--lock-attempts %d: at least 1 is wanted", f.limits.LockAttempts)}
	}
	return nil
}

// nixOptions splits NAME=VALUE settings.
func (f *applyFlags) nixOptions() ([][2]string, error) {
	var pairs [][2]string
	for _, item := range f.options {
		name, value, ok := cut(item)
		if !ok {
			return nil, usageError{fmt.Errorf("--option %q: a name and a value are wanted", item)}
		}
		pairs = append(pairs, [2]string{name, value})
	}
	return pairs, nil
}

func newApply(p Process) *cobra.Command {
	f := &applyFlags{}
	cmd := &cobra.Command{
		Use:   "apply FLAKE#NODES [flags] [-- NIX ARGS]",
		Short: "Deploy the nodes of a map, one at a time, in list order (the default verb)",
		Args:  refAndNixArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), p, args[0], args[1:])
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// refAndNixArgs takes one flake reference; what follows `--` is Nix's.
func refAndNixArgs(cmd *cobra.Command, args []string) error {
	own := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		own = args[:dash]
	}
	switch len(own) {
	case 0:
		return usageError{fmt.Errorf("a flake reference with the node map's attribute is wanted, such as .#nodes")}
	case 1:
		return nil
	}
	return usageError{fmt.Errorf("one flake reference is wanted, not %d: %q (arguments for Nix go behind --)", len(own), own)}
}

// run is a whole deploy: evaluate, plan, build, deploy, summary.
func (f *applyFlags) run(ctx context.Context, p Process, ref string, nixArgs []string) error {
	began := time.Now()
	if err := f.check(); err != nil {
		return err
	}
	options, err := f.nixOptions()
	if err != nil {
		return err
	}
	env, err := settings.ParseEnvironment(p.Env)
	if err != nil {
		return err
	}
	if f.clientConfig != "" {
		env.Config = f.clientConfig
	}
	out := newOutput(f, p)
	out.emit(report.Record{Run: &report.Run{Protocol: report.Protocol, Version: Version, Time: began, Source: ref}})

	nodes, work, err := f.plan(ctx, p, out, env, flake.Request{
		Ref: ref, Args: nixArgs, Options: options, Impure: f.impure, ShowTrace: f.showTrace,
	})
	if err != nil {
		return err
	}
	clientConfig, err := readableConfig(p, work.Config.V)
	if err != nil {
		return err
	}

	dir, err := ssh.NewRunDir(p.getenv)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	buildErrors, err := f.build(ctx, p, out, dir, nodes, options)
	if err != nil {
		return err
	}

	fleet := deploy.Fleet{
		Connector: &ssh.Client{
			Local: p.local(), Dir: dir, TempDir: or(p.getenv("TMPDIR"), os.TempDir()),
			ConnectTimeout: f.connectTimeout,
		},
		Copier:         closure.Copier{Runner: p.local(), Options: options, Timeout: f.copyTimeout},
		Limits:         f.limits,
		Goal:           f.goal,
		Reboot:         f.reboot,
		Confirm:        f.confirm,
		NoCheck:        f.noCheck,
		AcceptDegraded: f.acceptDegraded,
		ClientConfig:   clientConfig,
		Emit:           out.emit,
	}
	results := fleet.Run(ctx, work.Nodes, buildErrors)

	summary := summarize(results, ctx.Err() != nil, time.Since(began))
	out.emit(report.Record{Summary: summary})
	if out.failed != nil {
		say(p.Stderr, "writing the results: %v (the exit code still tells)", out.failed)
	}
	if summary.ExitCode != verdict.ExitGood {
		return exitCode(summary.ExitCode)
	}
	return nil
}

// plan evaluates the map and layers the settings. Any error here is one of the
// map or the settings: no host was contacted.
func (f *applyFlags) plan(ctx context.Context, p Process, out *output, env settings.Environment, r flake.Request) ([]flake.Node, plan.Plan, error) {
	began := time.Now()
	progress := out.lines(report.Evaluate)
	// Errors come back as values, each once; evaluating again repeats them here.
	show, inError := progress.Line, false
	progress.Line = func(text string) {
		inError = strings.HasPrefix(text, "error:") || inError && (text == "" || strings.HasPrefix(text, " "))
		if !inError || f.showTrace {
			show(text)
		}
	}
	r.Stderr = progress
	m, err := flake.Evaluator{Runner: p.local(), Limit: f.evalTimeout}.Evaluate(ctx, r)
	progress.Flush()
	if err != nil {
		return nil, plan.Plan{}, err
	}
	work, err := plan.Make(m, env)
	if err != nil {
		return nil, plan.Plan{}, err
	}
	out.emit(report.Record{Phase: &report.Phase{Time: time.Now(), Name: report.Evaluate, OK: true, Seconds: time.Since(began).Seconds()}})
	planned := &report.Plan{Notes: work.Notes}
	for _, n := range work.Nodes {
		planned.Nodes = append(planned.Nodes, n.Name)
	}
	out.emit(report.Record{Plan: planned})
	nodes := slices.DeleteFunc(slices.Clone(m.Nodes), func(n flake.Node) bool { return !n.Selected || n.EvalError != "" })
	return nodes, work, nil
}

// build builds what isn't there. The links in the run's directory keep the
// systems from being collected until the run ends.
func (f *applyFlags) build(ctx context.Context, p Process, out *output, dir *ssh.RunDir, nodes []flake.Node, options [][2]string) (map[string]error, error) {
	began := time.Now()
	roots := filepath.Join(dir.Path, "roots")
	if err := os.Mkdir(roots, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for gc roots: %w", err)
	}
	progress := out.lines(report.Build)
	failed, err := flake.Builder{
		Runner: p.local(), Roots: roots, Limit: f.buildTimeout, Options: options, Logs: f.logs, Stderr: progress,
	}.Build(ctx, nodes)
	progress.Flush()
	if err != nil {
		return nil, err
	}
	out.emit(report.Record{Phase: &report.Phase{
		Time: time.Now(), Name: report.Build, OK: true, Seconds: time.Since(began).Seconds(),
	}})
	return failed, nil
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

func summarize(results []report.Result, interrupted bool, took time.Duration) *report.Summary {
	s := &report.Summary{Time: time.Now(), Interrupted: interrupted, Failed: []string{}, Seconds: took.Seconds()}
	var verdicts []verdict.Verdict
	for _, r := range results {
		verdicts = append(verdicts, r.Verdict)
		if !r.Verdict.Good() {
			s.Failed = append(s.Failed, r.Node)
		}
	}
	s.ExitCode = verdict.ExitCode(verdicts, interrupted)
	return s
}
