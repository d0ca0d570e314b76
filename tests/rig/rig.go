// Package rig makes real hosts on one machine: a deployer and any number of targets,
// each a Debian with its own systemd, D-Bus, logind, OpenSSH and Nix store,
// on a network of their own. It needs root, but neither KVM nor a systemd on the machine.
//
// A host is a systemd-nspawn on an overlay over one cached debootstrap root.
// All of a rig lives in the pid, mount and network namespaces of one small process, the keeper:
// nothing of it is in the machine's own mount table or network,
// and when the keeper ends, the kernel clears all of it away.
// The keeper ends when the pipe to the process that made the rig closes,
// so a rig can't outlive its owner, however that dies.
// What then is left, a folder and some empty cgroups, the next [Up] removes.
package rig

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"time"

	"github.com/sourcegraph/conc/pool"
)

// Config says what [Up] makes.
type Config struct {
	// Name names the rig on this machine. Empty means a unique one.
	Name string
	// Suite is the Debian release of the hosts that name none. Empty means trixie.
	Suite string
	// Targets are the hosts beside the deployer.
	Targets []Target
	// Log is told what takes long. Nil means nobody is.
	Log io.Writer
}

// Target describes one host that is deployed to.
type Target struct {
	// Name is the host's name, of small letters, digits and inner hyphens.
	Name string
	// Suite is the host's Debian release. Empty means [Config.Suite].
	Suite string
	// SSHPort is the only port its sshd listens on. Zero means 22.
	SSHPort int
	// SSHConfig is lines of sshd_config. They come first, so they win over the rig's own.
	SSHConfig string
	// Container leaves the host looking like the container it is.
	// By default it looks like bare metal.
	Container bool
	// Files are laid into the host's root before its first boot, by absolute path.
	Files map[string]File
	// LoginShell is root's. Empty means /bin/bash.
	LoginShell string
}

// File is a file, or a symbolic link when Link is given.
type File struct {
	Content string
	// Mode is the permission bits. Zero means 0644.
	Mode fs.FileMode
	// Link is where a symbolic link points.
	Link string
}

// Rig is a running set of hosts.
type Rig struct {
	Name     string
	Deployer *Host
	// Targets are in the order of [Config.Targets].
	Targets []*Host
	// DeployerKey is the deployer's public key, as a line of authorized_keys.
	// Root of each target accepts it; the private half is the deployer's ~/.ssh/id_ed25519.
	DeployerKey string

	dir    string
	keeper keeper
	owner  *os.File // the owner's lock; nil when another process owns the rig
	log    io.Writer
}

const (
	// upTimeout bounds the boot of all hosts of a rig.
	upTimeout = 2 * time.Minute
	// downTimeout bounds the taking down of a rig, journals included.
	downTimeout = time.Minute
)

// Up makes a rig and waits until all its hosts are up.
// It first removes what dead rigs left behind, and builds the root file system
// when the cache has none, which takes a minute or two.
// The caller owns the rig and must call [Rig.Down].
func Up(ctx context.Context, config Config) (*Rig, error) {
	if config.Log == nil {
		config.Log = io.Discard
	}
	if config.Suite == "" {
		config.Suite = "trixie"
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	if err := Needs(); err != nil {
		return nil, err
	}
	started := time.Now()
	roots := []string{}
	for _, suite := range config.suites() {
		root, err := Root(ctx, suite, config.Log)
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	if err := raiseInotify(); err != nil {
		return nil, err
	}
	r, err := create(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := r.up(ctx, roots, config); err != nil {
		// The tidying has a time of its own: ctx may be what ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("rig %s: %w", r.Name, err), r.Down(ctx))
	}
	fmt.Fprintf(r.log, "rig %s: %d hosts up in %.1f s\n", r.Name, len(r.Hosts()), time.Since(started).Seconds())
	return r, nil
}

// up makes the hosts; roots are the root file systems of each, the deployer's first.
func (r *Rig) up(ctx context.Context, roots []string, config Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout, fmt.Errorf("not up within %v", upTimeout))
	defer cancel()
	if err := r.startKeeper(ctx, roots, config.Suite); err != nil {
		return err
	}
	if err := r.lay(config); err != nil {
		return err
	}
	hosts := pool.New().WithErrors().WithContext(ctx)
	for _, h := range r.Hosts() {
		hosts.Go(func(ctx context.Context) error {
			if err := h.Boot(ctx); err != nil {
				return err
			}
			return h.listens(ctx)
		})
	}
	return hosts.Wait()
}

// Hosts are the deployer and then the targets.
func (r *Rig) Hosts() []*Host {
	return append([]*Host{r.Deployer}, r.Targets...)
}

// Host returns the host of that name, and panics when there is none.
func (r *Rig) Host(name string) *Host {
	for _, h := range r.Hosts() {
		if h.Name == name {
			return h
		}
	}
	panic(fmt.Sprintf("rig %s has no host %q", r.Name, name))
}

// deployerName is the host name of every rig's deployer.
const deployerName = "deployer"

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// suites are the releases of all hosts, the deployer's first.
func (c Config) suites() []string {
	suites := []string{c.Suite}
	for _, t := range c.Targets {
		suite := t.Suite
		if suite == "" {
			suite = c.Suite
		}
		suites = append(suites, suite)
	}
	return suites
}

func (c Config) check() error {
	if c.Name != "" && !hostName.MatchString(c.Name) {
		return fmt.Errorf("rig name %q: want small letters, digits and inner hyphens", c.Name)
	}
	for _, suite := range c.suites() {
		if !hostName.MatchString(suite) {
			return fmt.Errorf("suite %q: want a Debian release name such as trixie", suite)
		}
	}
	// 10.77.0.11 to 10.77.0.254.
	if len(c.Targets) > 244 {
		return fmt.Errorf("%d targets: a rig's network has room for 244", len(c.Targets))
	}
	seen := map[string]bool{deployerName: true, "localhost": true}
	for _, t := range c.Targets {
		if !hostName.MatchString(t.Name) {
			return fmt.Errorf("target name %q: want small letters, digits and inner hyphens", t.Name)
		}
		if seen[t.Name] {
			return fmt.Errorf("target name %q is taken", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

func uniqueName() string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return "rig-" + hex.EncodeToString(b[:])
}
