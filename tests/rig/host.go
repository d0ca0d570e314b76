package rig

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Host is one machine of a rig. Its methods may be called at once.
type Host struct {
	Name string
	// Addr and Addr6 are its addresses in the rig's network.
	Addr, Addr6 string
	// SSHPort is where its sshd listens at first boot.
	SSHPort int
	// HostKey is its ed25519 host key, as in a known_hosts line after the host.
	HostKey string

	rig *Rig
	booter
}

// Cmd is a command to run in a host, as root.
type Cmd struct {
	// Args are the program, by path or by name in the host's PATH, and its arguments.
	Args []string
	// Env is added to a small clean environment.
	Env []string
	// Dir is the working directory. Empty means /.
	Dir string
	// Stdin is what it reads. Nil means nothing.
	Stdin io.Reader
	// Stdout and Stderr, where given, receive the output as it comes, instead of [Result].
	Stdout, Stderr io.Writer
}

// Result is how a command in a host ended.
type Result struct {
	Stdout, Stderr string
	// Code is the exit code, or 128 and the number of the signal that killed it.
	Code int
}

func cleanEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8", "TERM=dumb",
	}
}

// Run runs a command in the host, in all its namespaces but not in its cgroups.
// It is no login: neither sshd, PAM nor logind has a part in it.
// A command that ran to its end is no error, whatever its exit code.
// What it left running in the background goes on, but is not listened to any more.
// When ctx ends, the command is killed with all of its process group.
func (h *Host) Run(ctx context.Context, c Cmd) (Result, error) {
	if len(c.Args) == 0 {
		return Result{}, fmt.Errorf("host %s: a command without words", h.Name)
	}
	leader, ok := h.leader()
	if !ok {
		return Result{}, fmt.Errorf("running %s: host %s is down", c.Args[0], h.Name)
	}
	cmd := exec.CommandContext(ctx, "nsenter", enter(leader, c)...)
	cmd.Env = append(cleanEnv(), c.Env...)
	// The program shares the process group of nsenter, which is not its own in there.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	if c.Stdout == nil {
		cmd.Stdout = &stdout
	}
	if c.Stderr == nil {
		cmd.Stderr = &stderr
	}
	err := cmd.Run()
	result := Result{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return result, nil
	case ctx.Err() != nil:
		return result, fmt.Errorf("running %s on host %s: %w", c.Args[0], h.Name, context.Cause(ctx))
	case errors.As(err, &exit):
		result.Code = exit.ExitCode()
		if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
			result.Code = 128 + int(status.Signal())
		}
		return result, nil
	}
	return result, fmt.Errorf("running %s on host %s: %w", c.Args[0], h.Name, err)
}

// enter is the arguments of nsenter that run c beside process leader.
func enter(leader int, c Cmd) []string {
	// With --root and without --wd, nsenter would bring its working directory along from out here.
	args := []string{"--target", strconv.Itoa(leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "--"}
	if c.Dir != "" {
		args = append(args, "env", "--chdir="+c.Dir)
	}
	return append(args, c.Args...)
}

// Sh runs a script with the host's /bin/sh and returns its standard output.
// A script that fails is an error with what it said.
func (h *Host) Sh(ctx context.Context, script string) (string, error) {
	return h.ok(ctx, Cmd{Args: []string{"/bin/sh", "-c", script}})
}

// ok runs a command that must succeed.
func (h *Host) ok(ctx context.Context, c Cmd) (string, error) {
	result, err := h.Run(ctx, c)
	if err != nil {
		return result.Stdout, err
	}
	if result.Code != 0 {
		return result.Stdout, fmt.Errorf("host %s: %s: exit status %d: %s", h.Name,
			strings.Join(c.Args, " "), result.Code, strings.TrimSpace(result.Stderr))
	}
	return result.Stdout, nil
}

// WriteFile writes a file in the running host, making its folder.
func (h *Host) WriteFile(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	_, err := h.ok(ctx, Cmd{
		Args:  []string{"/bin/sh", "-c", `mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"`, "sh", path, fmt.Sprintf("%o", mode.Perm())},
		Stdin: bytes.NewReader(content),
	})
	return err
}

// ReadFile reads a file in the running host.
func (h *Host) ReadFile(ctx context.Context, path string) ([]byte, error) {
	content, err := h.ok(ctx, Cmd{Args: []string{"cat", "--", path}})
	return []byte(content), err
}

// CopyTree copies all files into a folder of the running host, which it makes.
// Symbolic links stay links, when files knows them ([fs.ReadLinkFS]).
func (h *Host) CopyTree(ctx context.Context, files fs.FS, dir string) error {
	r, w := io.Pipe()
	go func() {
		archive := tar.NewWriter(w)
		err := archive.AddFS(files)
		w.CloseWithError(errors.Join(err, archive.Close()))
	}()
	// The pipe's end is what lets the goroutine go when tar has failed early.
	defer r.Close()
	_, err := h.ok(ctx, Cmd{
		Args:  []string{"/bin/sh", "-c", `mkdir -p "$1" && tar -x --no-same-owner -C "$1"`, "sh", dir},
		Stdin: r,
	})
	if err != nil {
		return fmt.Errorf("copying to %s: %w", dir, err)
	}
	return nil
}

// Shell is a command that gives a person a shell in the host, or runs args there with a terminal.
// Its streams are this process's.
func (h *Host) Shell(args ...string) (*exec.Cmd, error) {
	leader, ok := h.leader()
	if !ok {
		return nil, fmt.Errorf("host %s is down", h.Name)
	}
	// A terminal of the machine is no terminal in there: script makes one.
	inner := []string{"script", "--quiet", "--return", "--command", "exec bash --login", "/dev/null"}
	if len(args) > 0 {
		inner = args
	}
	cmd := exec.Command("nsenter", enter(leader, Cmd{Args: inner, Dir: "/root"})...)
	cmd.Env = cleanEnv()
	if term, ok := os.LookupEnv("TERM"); ok {
		cmd.Env = append(cmd.Env, "TERM="+term)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd, nil
}
