package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// base holds a folder for each rig on this machine.
// It is on disk, where the hosts' own files go, and not the place for anything
// that must outlive a rig.
const base = "/var/tmp/deploy-ssh-rig"

// A rig is alive while one of these files in its folder is locked:
// the first by the process that made it, the second by the keeper of a detached rig.
const (
	ownerLock  = "owner.lock"
	keeperLock = "keeper.lock"
)

// state is what another process must know of a rig.
type state struct {
	Suite       string
	Keeper      process
	DeployerKey string
	Hosts       []hostState // the deployer first
}

type hostState struct {
	Name, Addr, Addr6, HostKey string
	SSHPort                    int
}

// create makes the rig's folder, with the owner's lock, after sweeping away dead ones.
func create(ctx context.Context, config Config) (*Rig, error) {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, err
	}
	// Between the folder's making and its locking it looks like a dead rig's.
	all, err := lock(ctx, filepath.Join(base, ".lock"))
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if err := sweep(config.Log); err != nil {
		return nil, err
	}
	name := config.Name
	if name == "" {
		name = uniqueName()
	}
	r := &Rig{Name: name, dir: filepath.Join(base, name), log: config.Log}
	if err := os.Mkdir(r.dir, 0o755); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("rig %s is up already", name)
	} else if err != nil {
		return nil, err
	}
	r.owner, err = tryLock(filepath.Join(r.dir, ownerLock))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.dir))
	}
	r.Deployer = &Host{Name: deployerName, Addr: "10.77.0.2", Addr6: "fd77::2", SSHPort: 22, rig: r}
	for i, t := range config.Targets {
		h := &Host{Name: t.Name, SSHPort: t.SSHPort, rig: r}
		h.Addr, h.Addr6 = fmt.Sprintf("10.77.0.%d", 11+i), fmt.Sprintf("fd77::%d", 11+i)
		if h.SSHPort == 0 {
			h.SSHPort = 22
		}
		r.Targets = append(r.Targets, h)
	}
	return r, nil
}

// cgroup is the cgroup in which each host of the rig has its own.
func cgroup(rig string) string { return "deploy-ssh-rig-" + rig }

// save notes what [Open] and the sweep need.
func (r *Rig) save(suite string) error {
	s := state{Suite: suite, Keeper: r.keeper.process, DeployerKey: r.DeployerKey}
	for _, h := range r.Hosts() {
		s.Hosts = append(s.Hosts, hostState{h.Name, h.Addr, h.Addr6, h.HostKey, h.SSHPort})
	}
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, "state.json")
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func load(name string) (state, error) {
	var s state
	text, err := os.ReadFile(filepath.Join(base, name, "state.json"))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading the state of rig %s: %w", name, err)
	}
	if len(s.Hosts) == 0 {
		return s, fmt.Errorf("reading the state of rig %s: no hosts", name)
	}
	return s, nil
}

// Open gives access to a rig that another process made.
// The caller does not own it; [Rig.Down] ends it nevertheless.
func Open(name string, log io.Writer) (*Rig, error) {
	if log == nil {
		log = io.Discard
	}
	s, err := load(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no rig %s", name)
	}
	if err != nil {
		return nil, err
	}
	r := &Rig{Name: name, DeployerKey: s.DeployerKey, dir: filepath.Join(base, name), log: log}
	r.keeper.process = s.Keeper
	for i, hs := range s.Hosts {
		h := &Host{Name: hs.Name, Addr: hs.Addr, Addr6: hs.Addr6, HostKey: hs.HostKey, SSHPort: hs.SSHPort, rig: r}
		if i == 0 {
			r.Deployer = h
		} else {
			r.Targets = append(r.Targets, h)
		}
	}
	return r, nil
}

// Detach lets the rig run on when this process ends, until somebody takes it down.
func (r *Rig) Detach(ctx context.Context) error {
	if _, err := r.keeper.talk.WriteString("detach\n"); err != nil {
		return fmt.Errorf("detaching rig %s: %w", r.Name, err)
	}
	if err := r.keeper.expect(ctx, "detached"); err != nil {
		return fmt.Errorf("detaching rig %s: %w", r.Name, err)
	}
	return nil
}

// Down ends all hosts and removes every trace of the rig. It may be called twice.
func (r *Rig) Down(ctx context.Context) error {
	started := time.Now()
	if err := r.keeper.end(); err != nil {
		return fmt.Errorf("taking rig %s down: %w", r.Name, err)
	}
	for _, h := range r.Hosts() {
		h.reap()
	}
	all, err := lock(ctx, filepath.Join(base, ".lock"))
	if err != nil {
		return err
	}
	defer all.Close()
	if err := remove(r.Name); err != nil {
		return fmt.Errorf("taking rig %s down: %w", r.Name, err)
	}
	if r.owner != nil {
		r.owner.Close()
		r.owner = nil
	}
	fmt.Fprintf(r.log, "rig %s: down in %.1f s\n", r.Name, time.Since(started).Seconds())
	return nil
}

// Status is one rig on this machine.
type Status struct {
	Name, Suite string
	Hosts       []string
	// Owned rigs end with the process that made them.
	Owned bool
}

// List returns the rigs that are alive, by name.
func List() ([]Status, error) {
	names, err := names()
	if err != nil {
		return nil, err
	}
	var list []Status
	for _, name := range names {
		owned, detached, err := alive(name)
		if err != nil {
			return nil, err
		}
		if !owned && !detached {
			continue
		}
		s, err := load(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // coming or going
		}
		if err != nil {
			return nil, err
		}
		status := Status{Name: name, Suite: s.Suite, Owned: !detached}
		for _, h := range s.Hosts {
			status.Hosts = append(status.Hosts, h.Name)
		}
		list = append(list, status)
	}
	return list, nil
}

// Sweep removes what dead rigs left on this machine.
func Sweep(ctx context.Context, log io.Writer) error {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	all, err := lock(ctx, filepath.Join(base, ".lock"))
	if err != nil {
		return err
	}
	defer all.Close()
	return sweep(log)
}

// sweep is [Sweep] for who holds the lock on all rigs.
func sweep(log io.Writer) error {
	names, err := names()
	if err != nil {
		return err
	}
	for _, name := range names {
		owned, detached, err := alive(name)
		if err != nil {
			return err
		}
		if owned || detached {
			continue
		}
		fmt.Fprintf(log, "rig %s: removing what it left\n", name)
		// The keeper may still be about to end: its owner has only just died.
		if s, err := load(name); err == nil {
			if err := s.Keeper.kill(); err != nil {
				return err
			}
		}
		if err := remove(name); err != nil {
			return fmt.Errorf("removing rig %s: %w", name, err)
		}
	}
	return nil
}

// remove clears away the folder and cgroups of a rig whose keeper is gone.
func remove(name string) error {
	dir := filepath.Join(base, name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Its mounts went with the keeper. Should one be here nevertheless,
	// removing through it would empty what is mounted.
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), " "+dir+"/") {
		return fmt.Errorf("%s still has something mounted in it", dir)
	}
	script := filepath.Join(dir, "cgroups.sh")
	if err := scriptFile(script, "mount -t cgroup2 cgroup2 /sys/fs/cgroup\n"+
		`[ ! -d "/sys/fs/cgroup/$1" ] || find "/sys/fs/cgroup/$1" -depth -type d -exec rmdir {} +`+"\n"); err != nil {
		return err
	}
	if out, err := namespaced(script, 0, cgroup(name)).CombinedOutput(); err != nil {
		return fmt.Errorf("removing its cgroups: %w: %s", err, out)
	}
	return os.RemoveAll(dir)
}

func names() ([]string, error) {
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func alive(name string) (owned, detached bool, err error) {
	owned, err = isLocked(filepath.Join(base, name, ownerLock))
	if err != nil {
		return false, false, err
	}
	detached, err = isLocked(filepath.Join(base, name, keeperLock))
	return owned, detached, err
}

func isLocked(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// tryLock locks a file, which it makes. Closing it, or dying, unlocks it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}

// lock is [tryLock] that waits for its turn.
func lock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := tryLock(path)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return f, err
		}
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("waiting for %s: %w", path, err)
		}
	}
}
