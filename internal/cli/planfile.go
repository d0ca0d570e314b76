package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/history"
	"github.com/deploy-ssh/deploy-ssh/internal/planfile"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
)

// keeper is a file that is written whole or not at all. A nil one keeps nothing.
type keeper struct {
	path string
	file *os.File
	done bool
}

// open makes sure that the plan can be written, before any host is asked.
func (f *planFlags) open(p Process, ref string) (*keeper, error) {
	if f.out == "" {
		return nil, nil
	}
	if history.HasSecret(ref) {
		return nil, usageError{fmt.Errorf("--out %s: the flake reference has a password or token in it, which a plan file must not keep; give it to Nix by access-tokens or a netrc file", f.out)}
	}
	path := p.path(f.out)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, usageError{fmt.Errorf("--out %s: it is no regular file", f.out)}
	}
	// Made with mode 0600.
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, usageError{fmt.Errorf("--out %s: %w", f.out, err)}
	}
	return &keeper{path: path, file: file}, nil
}

// keep puts the plan in its place.
func (k *keeper) keep(plan planfile.Plan) error {
	text, err := planfile.Encode(plan)
	if err != nil {
		return err
	}
	if _, err := k.file.Write(text); err != nil {
		return err
	}
	if err := k.file.Sync(); err != nil {
		return err
	}
	if err := k.file.Close(); err != nil {
		return err
	}
	if err := os.Rename(k.file.Name(), k.path); err != nil {
		return err
	}
	k.done = true
	return nil
}

// discard leaves nothing behind of a plan that was not kept.
func (k *keeper) discard() {
	if k != nil && !k.done {
		_ = k.file.Close()
		_ = os.Remove(k.file.Name())
	}
}

// path is where a path of the command line leads.
func (p Process) path(name string) string {
	if filepath.IsAbs(name) || p.Dir == "" {
		return name
	}
	return filepath.Join(p.Dir, name)
}

// planFile is what goes to the file.
func (f *planFlags) planFile(began time.Time, p Process, ref string, nixArgs []string, m ready, all []report.Planned) (planfile.Plan, error) {
	dir, err := filepath.Abs(or(p.Dir, "."))
	if err != nil {
		return planfile.Plan{}, err
	}
	config, err := configSum(m.clientConfig)
	if err != nil {
		return planfile.Plan{}, err
	}
	plan := planfile.Plan{
		Program: Version, Created: began.UTC().Round(time.Second), ClientConfig: config,
		Source: planfile.Source{Ref: ref, Dir: dir, Whole: len(m.work.LeftOut) == 0, NixArgs: len(nixArgs) > 0, Impure: f.impure, Combined: f.combined},
	}
	for i, n := range m.work.Nodes {
		plan.Nodes = append(plan.Nodes, planfile.Node{Name: n.Name, Toplevel: n.Toplevel, Settings: planfile.SettingsOf(n), Planned: all[i]})
	}
	return plan, nil
}

// configSum is the sum of the operator's client configuration; empty when there is none.
func configSum(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the ssh client configuration: %w", err)
	}
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:]), nil
}

// readPlan reads a plan file. It decides what becomes root's on the hosts, so nobody
// else may have been able to write it.
func readPlan(p Process, name string, now time.Time) (planfile.Plan, error) {
	bad := func(err error) (planfile.Plan, error) {
		return planfile.Plan{}, fmt.Errorf("reading the plan %s: %w", name, err)
	}
	// A pipe that nobody writes to would be waited for.
	file, err := os.OpenFile(p.path(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return bad(errors.Unwrap(err))
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return bad(err)
	}
	switch owner, known := info.Sys().(*syscall.Stat_t); {
	case !info.Mode().IsRegular():
		return bad(errors.New("it is no regular file"))
	case info.Mode().Perm()&0o022 != 0:
		return bad(fmt.Errorf("others than its owner can write it (mode %04o); plan again, or chmod 600 it once you have looked at it", info.Mode().Perm()))
	case known && int(owner.Uid) != os.Geteuid() && owner.Uid != 0:
		return bad(fmt.Errorf("it belongs to another user (uid %d)", owner.Uid))
	case info.Size() > planfile.MaxSize:
		return bad(fmt.Errorf("it has %d bytes, and no plan has more than %d", info.Size(), planfile.MaxSize))
	}
	text, err := io.ReadAll(io.LimitReader(file, planfile.MaxSize+1))
	if err != nil {
		return bad(err)
	}
	plan, err := planfile.Decode(text, now)
	if err != nil {
		return bad(err)
	}
	return plan, nil
}

// whole refuses a plan whose systems are no longer in this machine's store.
func whole(ctx context.Context, p Process, name string, plan planfile.Plan) error {
	var paths []string
	for _, n := range plan.Nodes {
		if n.Toplevel != "" && !n.Planned.Unbuildable() {
			paths = append(paths, n.Toplevel)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	invalid, err := closure.Invalid(ctx, p.local(), paths)
	if err != nil || len(invalid) == 0 {
		return err
	}
	var lines []string
	for _, n := range plan.Nodes {
		if slices.Contains(invalid, n.Toplevel) {
			lines = append(lines, "  node "+n.Name+": "+n.Toplevel)
		}
	}
	return fmt.Errorf("applying the plan %s: these systems are not in this machine's store (any more); plan again:\n%s", name, strings.Join(lines, "\n"))
}
