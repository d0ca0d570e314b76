package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unplug takes the host off the network, as pulling its cable would:
// connections go silent, none is closed.
func (h *Host) Unplug(ctx context.Context) error { return h.link(ctx, "down") }

// Plug puts the host back on the network.
func (h *Host) Plug(ctx context.Context) error { return h.link(ctx, "up") }

func (h *Host) link(ctx context.Context, state string) error {
	// keeper.sh numbers the ports of its switch in the order of the hosts.
	port := fmt.Sprintf("port%d", 1+slices.Index(h.rig.Hosts(), h))
	cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(h.rig.keeper.Pid), "--net", "--",
		"ip", "link", "set", port, state)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("setting the link of host %s %s: %w: %s", h.Name, state, err, out)
	}
	return nil
}

// listens makes sure that the host's sshd has its port.
// It makes no connection, for that would show in the host's journal.
func (h *Host) listens(ctx context.Context) error {
	leader, ok := h.leader()
	if !ok {
		return fmt.Errorf("host %s: it went down", h.Name)
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", leader, table))
		if err != nil {
			return err
		}
		if slices.Contains(listening(string(text)), h.SSHPort) {
			return nil
		}
	}
	journal, _ := h.Sh(ctx, "journalctl --no-pager -b -u ssh -n 20")
	return fmt.Errorf("host %s: its sshd doesn't listen on port %d:\n%s", h.Name, h.SSHPort, journal)
}

// listening reads the local ports of listening sockets from a table in /proc/net (proc_pid_net(5)).
func listening(table string) []int {
	var ports []int
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != "0A" {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
			ports = append(ports, int(port))
		}
	}
	return ports
}

// inNetwork calls f on a thread that is in a network namespace, given by its path.
// Sockets that f makes stay in that namespace, whichever thread uses them later.
func inNetwork(path string, f func() error) error {
	failed := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine,
		// so no other goroutine ever finds itself in the wrong network.
		runtime.LockOSThread()
		failed <- func() error {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("opening network namespace %s: %w", path, err)
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering network namespace %s: %w", path, err)
			}
			return f()
		}()
	}()
	return <-failed
}
