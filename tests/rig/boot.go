package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Signals that systemd takes for requests, when it is pid 1 (systemd(1), "Signals").
const (
	sigPowerOff = syscall.Signal(34 + 4) // SIGRTMIN+4
	sigReboot   = syscall.Signal(34 + 5)
)

// bootTimeout bounds one start or stop of a host.
const bootTimeout = time.Minute

// bootScript runs a host for as long as it wants to be up:
// with --keep-unit a host that reboots ends systemd-nspawn with 133.
const bootScript = `
echo 0 >"/sys/fs/cgroup/$1/cgroup.procs"
shift
code=133
while [ $code -eq 133 ]; do
	code=0
	systemd-nspawn "$@" || code=$?
done
exit $code`

// booter is the child of this process that runs a host, if this process booted it.
type booter struct {
	mu  sync.Mutex
	cmd *exec.Cmd
}

// reap waits for the child that ran the host, once the host is down.
func (b *booter) reap() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil {
		b.cmd.Wait() // the host's end is told by its cgroup, not by this status
		b.cmd = nil
	}
}

// Boot starts a host that is down and waits until it is up.
func (h *Host) Boot(ctx context.Context) error {
	ctx, cancel := h.limit(ctx, "boot")
	defer cancel()
	if h.running() {
		return fmt.Errorf("booting host %s: it is up already", h.Name)
	}
	h.reap()
	if err := h.start(); err != nil {
		return fmt.Errorf("booting host %s: %w", h.Name, err)
	}
	return h.waitUp(ctx, 0)
}

func (h *Host) start() error {
	dir := h.rig.dir
	console, err := os.OpenFile(filepath.Join(dir, h.Name+".console"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(h.rig.keeper.Pid), "--mount", "--pid", "--root", "--wd", "--",
		"/bin/sh", "-c", bootScript, "boot", cgroup(h.rig.Name)+"/"+h.Name,
		"--quiet", "--directory="+filepath.Join(dir, "hosts", h.Name, "root"), "--boot",
		"--machine="+h.Name, "--hostname="+h.Name,
		"--keep-unit", "--register=no", "--settings=no",
		"--link-journal=no", "--resolv-conf=off", "--timezone=off",
		// The network is the host's own, so it may do with it what a host may.
		"--network-namespace-path="+filepath.Join(dir, "net", h.Name), "--capability=CAP_NET_ADMIN",
		"--console=read-only",
		"systemd.show_status=no")
	cmd.Env = cleanEnv()
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cmd = cmd
	return nil
}

// waitUp waits until the host has started all that it starts at boot,
// with another pid 1 than before.
func (h *Host) waitUp(ctx context.Context, before int) error {
	said := "pid 1 not seen"
	for {
		if leader, ok := h.leader(); ok && leader != before {
			// Its socket is there as soon as it can be asked.
			if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/systemd/private", leader)); err == nil {
				result, err := h.Run(ctx, Cmd{Args: []string{"systemctl", "is-system-running"}})
				if err == nil {
					said = strings.TrimSpace(result.Stdout + result.Stderr)
				}
				switch said {
				case "running", "degraded":
					return nil
				case "maintenance":
					return fmt.Errorf("booting host %s: it came up in maintenance mode", h.Name)
				}
			}
		}
		if h.ended() {
			return fmt.Errorf("booting host %s: systemd-nspawn ended:\n%s", h.Name, h.Console())
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("booting host %s: %w (last: %s)", h.Name, err, said)
		}
	}
}

// Reboot has the host reboot itself, and waits until it is up again.
func (h *Host) Reboot(ctx context.Context) error {
	ctx, cancel := h.limit(ctx, "reboot")
	defer cancel()
	leader, ok := h.leader()
	if !ok {
		return fmt.Errorf("rebooting host %s: it is down", h.Name)
	}
	if err := syscall.Kill(leader, sigReboot); err != nil {
		return fmt.Errorf("rebooting host %s: %w", h.Name, err)
	}
	return h.waitUp(ctx, leader)
}

// PowerOff has the host shut down in order, and waits until it is down.
func (h *Host) PowerOff(ctx context.Context) error { return h.stop(ctx, "power-off", sigPowerOff) }

// Kill ends the host like a power cut.
func (h *Host) Kill(ctx context.Context) error { return h.stop(ctx, "kill", syscall.SIGKILL) }

func (h *Host) stop(ctx context.Context, what string, signal syscall.Signal) error {
	ctx, cancel := h.limit(ctx, what)
	defer cancel()
	leader, ok := h.leader()
	if !ok {
		return fmt.Errorf("%s of host %s: it is down", what, h.Name)
	}
	if err := syscall.Kill(leader, signal); err != nil {
		return fmt.Errorf("%s of host %s: %w", what, h.Name, err)
	}
	for h.running() {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%s of host %s: %w", what, h.Name, err)
		}
	}
	h.reap()
	return nil
}

// Up tells whether the host's pid 1 is there.
func (h *Host) Up() bool {
	_, ok := h.leader()
	return ok
}

// leader finds the host's pid 1, by its number out here.
func (h *Host) leader() (int, bool) {
	procs, err := os.ReadFile(h.cgroupFile("payload/init.scope/cgroup.procs"))
	if err != nil {
		return 0, false
	}
	for _, word := range strings.Fields(string(procs)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if pids, ok := strings.CutPrefix(line, "NSpid:"); ok && strings.HasSuffix(strings.TrimSpace(pids), "\t1") {
				return pid, true
			}
		}
	}
	return 0, false
}

// running tells whether anything of the host is left, systemd-nspawn included.
func (h *Host) running() bool {
	events, err := os.ReadFile(h.cgroupFile("cgroup.events"))
	return err == nil && strings.Contains(string(events), "populated 1")
}

// ended tells whether the child that ran the host has ended, without waiting for it.
func (h *Host) ended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cmd == nil {
		return false
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, h.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

func (h *Host) cgroupFile(name string) string {
	return h.rig.keeper.root("sys/fs/cgroup", cgroup(h.rig.Name), h.Name, name)
}

// Console is the end of what the host and systemd-nspawn wrote to the console.
func (h *Host) Console() string {
	text, err := os.ReadFile(filepath.Join(h.rig.dir, h.Name+".console"))
	if err != nil {
		return err.Error()
	}
	const most = 16 << 10
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return strings.TrimSpace(string(text))
}

func (h *Host) limit(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("no end of %s within %v", what, bootTimeout))
}

// pause is how long a wait rests between two looks.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}
