package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/deploy"
	"github.com/deploy-ssh/deploy-ssh/internal/history"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
)

// reportFlags are the flags of the verbs whose runs are kept.
type reportFlags struct {
	dir         string
	none, retry bool
}

const reportMeaning = "the directory of the runs' reports (default: deploy-ssh in $XDG_STATE_HOME or ~/.local/state)"

func (f *reportFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.dir, "report", "", "keep the records of this run in `DIR`, "+reportMeaning)
	flags.BoolVar(&f.none, "no-report", false, "keep no report of this run")
	flags.BoolVar(&f.retry, "retry-failed", false, "only the nodes whose last run, by this verb and on record, did not end well or was cut off")
}

func (f *reportFlags) check() error {
	if f.none && f.dir != "" {
		return usageError{errors.New("--report with --no-report: either a report is kept or not")}
	}
	return nil
}

// reportDir is where reports are.
func reportDir(p Process, given string) (string, error) {
	switch state, home := p.getenv("XDG_STATE_HOME"), p.getenv("HOME"); {
	case given != "":
		return filepath.Abs(p.path(given))
	case filepath.IsAbs(state):
		return filepath.Join(state, "deploy-ssh"), nil
	case filepath.IsAbs(home):
		return filepath.Join(home, ".local/state/deploy-ssh"), nil
	}
	return "", errors.New("neither XDG_STATE_HOME nor HOME is an absolute path; --report DIR names a directory")
}

// start has the run's records kept and, where that is asked, the map narrowed to what
// earlier runs have left to do.
func (f *reportFlags) start(p Process, out *output, m *mapFlags, head history.Head) {
	f.keep(p, out, head)
	if f.retry {
		m.retry = func() ([]history.Run, error) { return f.retryable(p, head) }
	}
}

// keep has the run's records kept. That none can be is no reason not to deploy.
func (f *reportFlags) keep(p Process, out *output, head history.Head) {
	if f.none {
		return
	}
	warn := func(err error) { say(p.Stderr, "warning: this run leaves no report: %v", err) }
	dir, err := reportDir(p, f.dir)
	if err != nil {
		warn(err)
		return
	}
	out.kept, out.lost = history.NewWriter(dir, head), warn
}

// retryable are the runs on record that tell what is left to do for one that is to
// begin, the newest first: those of the same map and verb. Of one that was not to come as
// far only what it left undone counts.
func (f *reportFlags) retryable(p Process, wanted history.Head) ([]history.Run, error) {
	dir, err := reportDir(p, f.dir)
	if err != nil {
		return nil, fmt.Errorf("--retry-failed: %w", err)
	}
	heads, err := history.Heads(dir)
	if err != nil {
		return nil, fmt.Errorf("--retry-failed: %w", err)
	}
	var runs []history.Run
	for _, head := range heads {
		if head.Verb != wanted.Verb || head.Map != wanted.Map || effect(head.Goal) != effect(wanted.Goal) {
			continue
		}
		if head.Going {
			return nil, usageError{fmt.Errorf("--retry-failed: a run of this map is under way (report %s, begun %s); wait for its end", head.Name, when(head.Time))}
		}
		run, err := history.Load(dir, head)
		if err != nil {
			return nil, fmt.Errorf("--retry-failed: %w", err)
		}
		if !covers(head.Head, wanted) {
			run = run.LeftUndone()
		}
		runs = append(runs, run)
	}
	if len(runs) == 0 {
		others := "there is no report of another one either"
		if len(heads) > 0 {
			others = "there are reports of others: deploy-ssh report --list"
		}
		return nil, usageError{fmt.Errorf("--retry-failed: no run of this map by %s is on record in %s; %s", wanted.Verb, dir, others)}
	}
	return runs, nil
}

// covers reports whether a run that went well has done all that another one would.
func covers(run, other history.Head) bool {
	return deploy.Goal(run.Goal).Covers(deploy.Goal(other.Goal)) && (run.Reboot || !other.Reboot)
}

// effect groups goals: what a run that changed nothing came to is no word on whether
// hosts are as wanted.
func effect(goal string) string {
	switch goal := deploy.Goal(goal); goal {
	case deploy.GoalBuild, deploy.GoalPush, deploy.GoalDryActivate:
		return string(goal)
	}
	return "change"
}

func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// mapSum is a sum of what names a node map: equal for the same flake and attribute,
// however they are written. Nothing can be read out of it. The system of all nodes is
// another thing than the nodes' own ones.
func mapSum(p Process, ref string, nixArgs []string, combined bool) string {
	name := mapName(p, ref, nixArgs)
	if combined {
		name = append([]string{"combined"}, name...)
	}
	sum := sha256.Sum256([]byte(strings.Join(name, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// mapName is what names a node map. Of Nix's arguments those count that say where the
// attribute is looked for, which is then no flake's.
func mapName(p Process, ref string, nixArgs []string) []string {
	dir, err := filepath.Abs(p.path("."))
	if err != nil {
		dir = p.Dir
	}
	if ref == "" {
		return []string{settings.KeyNodes, dir}
	}
	for i, arg := range nixArgs {
		switch {
		case slices.Contains([]string{"-f", "--file"}, arg) && i+1 < len(nixArgs):
			return []string{"file", real(filepath.Join(dir, nixArgs[i+1])), ref}
		case arg == "--expr" && i+1 < len(nixArgs):
			return []string{"expr", dir, nixArgs[i+1], ref}
		}
	}
	flake, attribute, _ := strings.Cut(ref, "#")
	path := flake
	for _, scheme := range []string{"git+file://", "git+file:", "path:"} {
		path = strings.TrimPrefix(path, scheme)
	}
	path, query, _ := strings.Cut(path, "?")
	if path != "" && path[0] != '.' && path[0] != '/' {
		return []string{"flake", flake, attribute}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return []string{"flake", flakeRoot(real(path)), query, attribute}
}

// flakeRoot is the nearest directory with a flake.nix from here upwards, as Nix looks
// for it; where there is none, the directory itself.
func flakeRoot(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "flake.nix")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// real is a path without links, or the path itself where it leads nowhere.
func real(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return path
}
