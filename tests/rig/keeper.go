package rig

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed private.sh
var privateScript string

//go:embed keeper.sh
var keeperScript string

// keeper is the process that holds a rig's namespaces (keeper.sh).
type keeper struct {
	process
	// talk is the pipe whose closing ends the keeper, hear its answers.
	// Both are nil when another process started it.
	talk, hear *os.File
	cmd        *exec.Cmd
}

// process is a process that may have ended, and its pid been given to another, since it was noted.
type process struct {
	Pid int
	// Start is when it started, in the kernel's clock ticks since the machine's boot.
	Start string
}

// scriptFile writes a shell script that runs in namespaces of its own.
func scriptFile(path, script string) error {
	text := "#!/bin/sh\nset -eu\n" + privateScript + "\n" + script
	return os.WriteFile(path, []byte(text), 0o755)
}

// namespaced is a command that runs such a script as pid 1 of a new pid namespace,
// so that killing it kills all that it started.
func namespaced(script string, flags uintptr, args ...string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", append([]string{script}, args...)...)
	cmd.Env = cleanEnv()
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | flags,
		Setsid:     true,
	}
	return cmd
}

// startKeeper makes the rig's namespaces, disks and network.
func (r *Rig) startKeeper(ctx context.Context, roots []string, suite string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("making namespaces: %w", err)
		}
	}()
	script := filepath.Join(r.dir, "keeper.sh")
	if err := scriptFile(script, keeperScript); err != nil {
		return err
	}
	logPath := filepath.Join(r.dir, "keeper.log")
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()
	stdin, talk, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	hear, stdout, err := os.Pipe()
	if err != nil {
		talk.Close()
		return err
	}
	defer stdout.Close()

	args := []string{r.dir, cgroup(r.Name)}
	for i, h := range r.Hosts() {
		args = append(args, h.Name, roots[i], h.Addr+"/24", h.Addr6+"/64")
	}
	cmd := namespaced(script, syscall.CLONE_NEWNET, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, log
	if err := cmd.Start(); err != nil {
		talk.Close()
		hear.Close()
		return err
	}
	r.keeper = keeper{process: process{Pid: cmd.Process.Pid}, talk: talk, hear: hear, cmd: cmd}
	r.keeper.Start, err = startTime(cmd.Process.Pid)
	if err != nil {
		return err
	}
	// From here on a sweep finds the keeper, should we die.
	if err := r.save(suite); err != nil {
		return err
	}
	stdout.Close() // so that the keeper's end is seen as the end of its output
	if err := r.keeper.expect(ctx, "ready"); err != nil {
		said, _ := os.ReadFile(logPath)
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(string(said)))
	}
	return nil
}

// expect waits for a line of the keeper.
func (k keeper) expect(ctx context.Context, want string) error {
	stop := context.AfterFunc(ctx, func() { k.hear.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReader(k.hear).ReadString('\n')
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return errors.New("the keeper ended")
	case strings.TrimSpace(line) != want:
		return fmt.Errorf("the keeper said %q instead of %q", strings.TrimSpace(line), want)
	}
	return nil
}

// root is a path in the keeper's mount namespace, as seen from here.
// It must lead over no absolute symbolic link.
func (k keeper) root(path ...string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", k.Pid), filepath.Join(path...))
}

// end kills the keeper, and with it all processes, mounts and links of the rig,
// and returns when they are gone.
func (k keeper) end() error {
	if k.cmd != nil {
		k.talk.Close()
		k.hear.Close()
		k.cmd.Process.Kill()
		k.cmd.Wait() // its status says no more than that it was killed
		return nil
	}
	return k.process.kill()
}

// kill ends a process that is not our child, if it still is the one that was noted.
func (p process) kill() error {
	if p.Pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", p.Pid, err)
	}
	defer unix.Close(fd)
	if start, err := startTime(p.Pid); err != nil || start != p.Start {
		return nil // it ended, and the pid is another's
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing process %d: %w", p.Pid, err)
	}
	const limit = 30 * time.Second
	deadline := time.Now().Add(limit)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("waiting for process %d: %w", p.Pid, err)
		case time.Now().After(deadline):
			return fmt.Errorf("process %d: not gone %v after SIGKILL", p.Pid, limit)
		}
	}
}

// startTime is field 22 of proc_pid_stat(5).
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field, the command's name, is in brackets and may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields)+2)
	}
	return fields[19], nil
}
