package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tools maps each program that a rig runs on the machine to its Debian package.
var tools = map[string]string{
	"debootstrap":    "debootstrap",
	"systemd-nspawn": "systemd-container",
	"ip":             "iproute2",
	"nsenter":        "util-linux",
	"unshare":        "util-linux",
	"flock":          "util-linux",
	"mount":          "mount",
}

// NeedsError is what keeps this machine from having a rig.
type NeedsError struct{ Missing []string }

func (e *NeedsError) Error() string {
	return "this machine can't have a rig: " + strings.Join(e.Missing, "; ")
}

// Needs tells whether this machine can have a rig. It returns a [*NeedsError] or nil.
func Needs() error {
	missing := machineNeeds()
	for _, tool := range slices.Sorted(maps.Keys(tools)) {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, fmt.Sprintf("no %s (Debian package %s)", tool, tools[tool]))
		}
	}
	if len(missing) > 0 {
		return &NeedsError{missing}
	}
	return nil
}

// machineNeeds are the needs that no package fills.
func machineNeeds() []string {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "it takes root")
	} else if !mayMount() {
		missing = append(missing, "root may not mount here (no CAP_SYS_ADMIN: an unprivileged container?)")
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		missing = append(missing, "/proc isn't mounted")
	}
	for _, name := range []string{"overlay", "cgroup2"} {
		// A module may be loaded only at the first mount.
		if err == nil && !strings.Contains(string(known), "\t"+name+"\n") && exec.Command("modprobe", name).Run() != nil {
			missing = append(missing, "the kernel has no "+name)
		}
	}
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		missing = append(missing, "/sys isn't mounted")
	}
	return missing
}

// mayMount tells whether this process has CAP_SYS_ADMIN (proc_pid_status(5), capabilities(7)).
func mayMount() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return true // what keeps it from being read is said elsewhere
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	word, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(strings.TrimSpace(word), 16, 64)
	return err == nil && caps&(1<<unix.CAP_SYS_ADMIN) != 0
}

// packages are what the rig and the project's other tests need on a Debian machine.
var packages = []string{
	"debootstrap", "debian-archive-keyring", "systemd-container", "iproute2", "util-linux", "mount",
	"nix-bin", "git", "openssh-client", "python3-minimal", "mksh", "gcc", "libc6-dev", "ca-certificates",
}

// Install installs what is missing of the Debian packages that the rig and
// the project's other tests need, and sees to it that there are pseudoterminals.
// Log gets apt's own words.
func Install(ctx context.Context, log io.Writer) error {
	if missing := machineNeeds(); len(missing) > 0 {
		return &NeedsError{missing}
	}
	if err := pseudoterminals("/dev", log); err != nil {
		return err
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		if err := Needs(); err != nil {
			return fmt.Errorf("%w (and there is no apt-get to install it)", err)
		}
		return nil
	}
	missing, err := notInstalled(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	fmt.Fprintf(log, "rig: installing %s\n", strings.Join(missing, " "))
	if err := aptGet(ctx, log, "update"); err != nil {
		return err
	}
	return aptGet(ctx, log, append([]string{"install", "-y", "--no-install-recommends"}, missing...)...)
}

// pseudoterminals mounts devpts in dev, which is /dev, where it is missing:
// Nix opens a pseudoterminal for every build. A container has none whose /dev
// is the machine's without what is mounted in it.
func pseudoterminals(dev string, log io.Writer) error {
	before := openPseudoterminal(dev)
	if before == nil {
		return nil
	}
	pts := filepath.Join(dev, "pts")
	fmt.Fprintf(log, "rig: mounting devpts on %s, because there are no pseudoterminals: %v\n", pts, before)
	// Group 5 is tty on Debian; the mode is that of mesg n.
	err := unix.Mount("devpts", pts, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=666")
	if err == nil {
		err = openPseudoterminal(dev)
	}
	if err != nil {
		return &NeedsError{[]string{fmt.Sprintf("no pseudoterminals, which Nix needs to build (%v), and mounting devpts on %s didn't help: %v", before, pts, err)}}
	}
	return nil
}

// openPseudoterminal tells why no pseudoterminal can be opened, or nil (pts(4)).
func openPseudoterminal(dev string) error {
	master, err := os.OpenFile(filepath.Join(dev, "ptmx"), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(dev, "pts", strconv.Itoa(number)))
	return err
}

func notInstalled(ctx context.Context) ([]string, error) {
	var missing []string
	for _, name := range packages {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Status}", name).Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return nil, fmt.Errorf("asking dpkg for %s: %w", name, err)
		}
		if string(out) != "install ok installed" {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

func aptGet(ctx context.Context, log io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w", args[0], err)
	}
	return nil
}

// raiseInotify makes room for the inotify instances of many hosts, seven each:
// when they run out, systemd fails in ways that don't tell why.
func raiseInotify() error {
	const path, want = "/proc/sys/fs/inotify/max_user_instances", 4096
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if have, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || have >= want {
		return err
	}
	return os.WriteFile(path, []byte(strconv.Itoa(want)), 0o644)
}
