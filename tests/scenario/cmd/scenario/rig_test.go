package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/sshworld"
)

const (
	onlooker  = "/root/onlooker"
	worldFile = "/root/world.json"
	program   = "/usr/local/bin/scenario"
)

// The program plays on a deployer as it does in a NixOS VM, and there is no
// scenario that it can't play there.
func TestOnADeployer(t *testing.T) {
	w, r := rigworld.Start(t)
	install(t, r)
	described := describe(w)
	write(t, r, described)

	users(t, r.Targets[0])
	played := map[string]bool{}
	// As the VM tests call it. They are one story: each begins where the one before ended.
	for _, names := range []string{
		"BadInput TwoTargets Unchanged Pins HostKeys", "OneDown BrokenSystems", "Recovery", "Verdicts", "Elevation",
	} {
		t.Run(names, func(t *testing.T) {
			out := call(t, r, "run "+names+" --world "+worldFile)
			t.Log(out.Stdout)
			if out.Code != 0 {
				t.Fatalf("exit code %d\n%s", out.Code, out.Stderr)
			}
			for _, name := range strings.Fields(names) {
				played[name] = true
				if !strings.Contains(out.Stdout, name+": ok, ") {
					t.Errorf("%s was not played", name)
				}
			}
		})
	}
	for _, s := range scenarios {
		if !played[s.name] {
			t.Errorf("%s was not played", s.name)
		}
	}

	// What is not so is seen, and said with the name of the scenario.
	t.Run("another page", func(t *testing.T) {
		wrong := describe(w)
		wrong.Targets[1].Page = "another page\n"
		write(t, r, wrong)
		out := call(t, r, "run TwoTargets --world "+worldFile)
		if out.Code != 1 || !strings.Contains(out.Stderr, "scenario: TwoTargets: target web2: the page is ") {
			t.Errorf("exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
	})
	t.Run("another port", func(t *testing.T) {
		wrong := describe(w)
		wrong.Targets[0].Port = 1
		write(t, r, wrong)
		out := call(t, r, "run Unchanged --world "+worldFile)
		if out.Code != 1 || !strings.Contains(out.Stderr, "scenario: Unchanged: web1: ") || !strings.Contains(out.Stderr, "Connection refused") {
			t.Errorf("exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
	})
}

// users makes those that Elevation logs in as: with the restricted keys and the rules
// that nix/target.nix gives them on NixOS.
func users(t *testing.T, h *rig.Host) {
	t.Helper()
	if _, err := h.Sh(t.Context(), `for user in sudoer doer plain; do
  useradd -m -s /bin/bash $user && mkdir -p -m 700 /home/$user/.ssh
  sed 's/^/restrict,port-forwarding,permitlisten="localhost:*",permitlisten="127.0.0.1:*" /' /root/.ssh/authorized_keys >/home/$user/.ssh/authorized_keys
  chown -R $user /home/$user/.ssh
done
echo 'sudoer ALL=(root) NOPASSWD: /bin/sh, NOPASSWD: /run/current-system/sw/bin/nix-daemon' >/etc/sudoers.d/sudoer; chmod 440 /etc/sudoers.d/sudoer
{ echo 'permit nopass doer as root cmd /bin/sh'; echo 'permit nopass doer as root cmd /run/current-system/sw/bin/nix-daemon'; } >/etc/doas.conf; chmod 600 /etc/doas.conf`); err != nil {
		t.Fatal(err)
	}
}

// describe writes a rig's world as its file has it.
func describe(w scenario.World) sshworld.World {
	one := func(t scenario.Target) sshworld.Target {
		return sshworld.Target{
			Node: t.Node, Host: t.Host, Port: t.Port, ServerName: t.ServerName, Page: t.Page, Certificate: t.Certificate,
		}
	}
	described := sshworld.World{
		Flake: w.Flake, Program: w.Program, ClientConfig: w.ClientConfig,
		SSH: sshworld.Client{User: "root", Key: onlooker, KnownHosts: onlooker + ".known_hosts"},
	}
	for _, t := range w.Targets {
		described.Targets = append(described.Targets, one(t))
	}
	baseline := one(*w.Baseline)
	described.Baseline = &baseline
	return described
}

// install brings the program to the deployer, and a key of its own to all hosts.
func install(t *testing.T, r *rig.Rig) {
	t.Helper()
	ctx := t.Context()
	binary := filepath.Join(t.TempDir(), "scenario")
	building, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("not built within 5 minutes"))
	defer cancel()
	build := exec.CommandContext(building, "go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Deployer.WriteFile(ctx, program, content, 0o755); err != nil {
		t.Fatal(err)
	}
	key, err := r.Deployer.Sh(ctx, "ssh-keygen -q -t ed25519 -N '' -f "+onlooker+" && cat "+onlooker+".pub")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Targets {
		if _, err := h.Sh(ctx, "echo '"+strings.TrimSpace(key)+"' >>/root/.ssh/authorized_keys"); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, r *rig.Rig, w sshworld.World) {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Deployer.WriteFile(t.Context(), worldFile, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// call runs the program on the deployer.
func call(t *testing.T, r *rig.Rig, args string) rig.Result {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Minute, fmt.Errorf("scenario %s did not end within 10 minutes", args))
	defer cancel()
	out, err := r.Deployer.Run(ctx, rig.Cmd{Args: append([]string{program}, strings.Fields(args)...), Dir: "/root", Env: []string{rigworld.RaceEnv}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
