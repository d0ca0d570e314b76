// Package rigworld plays the scenarios' world in the rig: real hosts on this
// machine, each with a first generation, and a deployer with the program and a
// flake that has the scenarios' node maps.
package rigworld

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
	"github.com/deploy-ssh/deploy-ssh/tests/toplevels"
)

//go:embed flake.nix
var flakeText string

// Flake is the directory of the flake on the deployer.
const Flake = "/root/fleet"

// Program is where the program is on the deployer.
const Program = "/usr/local/bin/deploy-ssh"

// ClientConfig is a client configuration on the deployer.
const ClientConfig = "/root/client.conf"

// clientConfig names the port that no node entry does.
const clientConfig = "Host web2\n    Port 2202\n"

// Machine is a host of the rig as a scenario sees it.
type Machine struct{ *rig.Host }

// RaceEnv keeps a program with the race detector from its sleep of a second at each end.
const RaceEnv = "GORACE=atexit_sleep_ms=0"

// Run implements [scenario.Machine].
func (m Machine) Run(ctx context.Context, script string) (scenario.Output, error) {
	result, err := m.Host.Run(ctx, rig.Cmd{Args: []string{"/bin/sh", "-c", script}, Env: []string{RaceEnv}})
	return scenario.Output{Stdout: result.Stdout, Stderr: result.Stderr, Code: result.Code}, err
}

// Targets returns rig targets that can be switched: they look like NixOS and
// their sshds listen on the given ports only. Names lead to ports.
func Target(name string, port int) rig.Target {
	files := map[string]rig.File{}
	for path, f := range toplevels.HostFiles() {
		files[path] = rig.File{Content: string(f.Content), Mode: f.Mode}
	}
	return rig.Target{Name: name, SSHPort: port, Files: files}
}

// Start makes the world for one test: web1, web2 and the baseline.
func Start(t testing.TB) (scenario.World, *rig.Rig) {
	t.Helper()
	r := rig.Start(t, rig.Config{Targets: []rig.Target{
		Target("web1", 2201), Target("web2", 2202), Target("baseline", 2203),
	}})
	ctx := t.Context()
	if err := Prepare(ctx, r, Build(t), flakeText); err != nil {
		t.Fatal(err)
	}
	first, err := BuildToplevel(ctx, r, ".#first")
	if err != nil {
		t.Fatal(err)
	}
	// The baseline boots into the very system that web1 is deployed to.
	baseline, err := BuildToplevel(ctx, r, ".#baseline")
	if err != nil {
		t.Fatal(err)
	}
	for name, toplevel := range map[string]string{"web1": first, "web2": first, "baseline": baseline} {
		if err := Install(ctx, r, r.Host(name), toplevel); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Host("baseline").Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	target := func(name, serverName, page string) scenario.Target {
		host := r.Host(name)
		return scenario.Target{
			Machine: Machine{host}, Node: name, Host: name, Port: host.SSHPort, ServerName: serverName,
			Page: page, Certificate: "etc/ssl-resource.pem",
		}
	}
	bootedBaseline := target("baseline", "web1", "web1 two\n")
	return scenario.World{
		Deployer:     Machine{r.Deployer},
		Targets:      []scenario.Target{target("web1", "web1", "web1 two\n"), target("web2", "web2", "web2 two\n")},
		Baseline:     &bootedBaseline,
		Flake:        Flake,
		Program:      Program,
		ClientConfig: ClientConfig,
	}, r
}

// Build compiles the program for the hosts, with the race detector, and returns
// the path of the binary.
func Build(t testing.TB) string {
	t.Helper()
	path, err := BuildProgram(t.Context(), t.TempDir(), "-race")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// BuildProgram compiles the program into dir and returns the path of the binary.
func BuildProgram(ctx context.Context, dir string, flags ...string) (string, error) {
	path := filepath.Join(dir, "deploy-ssh")
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("not built within 5 minutes"))
	defer cancel()
	args := append(append([]string{"build"}, flags...), "-o", path, "github.com/deploy-ssh/deploy-ssh/cmd/deploy-ssh")
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return path, nil
}

// Prepare gives the deployer the program and a flake beside the toplevels' library.
func Prepare(ctx context.Context, r *rig.Rig, binary, flake string) error {
	d := r.Deployer
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	if err := d.WriteFile(ctx, Program, program, 0o755); err != nil {
		return err
	}
	if err := d.WriteFile(ctx, ClientConfig, []byte(clientConfig), 0o600); err != nil {
		return err
	}
	if err := d.CopyTree(ctx, toplevels.Tree, Flake+"/toplevels"); err != nil {
		return err
	}
	return d.WriteFile(ctx, Flake+"/flake.nix", []byte(flake), 0o644)
}

// BuildToplevel builds an attribute of the flake on the deployer.
func BuildToplevel(ctx context.Context, r *rig.Rig, attribute string) (string, error) {
	out, err := r.Deployer.Sh(ctx, "cd "+Flake+" && nix build -o /root/built "+attribute+" && readlink -f /root/built")
	return strings.TrimSpace(out), err
}

// Install makes a toplevel of the deployer the first generation of a host,
// without the program and without ssh.
func Install(ctx context.Context, r *rig.Rig, h *rig.Host, toplevel string) error {
	var closure bytes.Buffer
	export, err := r.Deployer.Run(ctx, rig.Cmd{
		Args:   []string{"/bin/sh", "-c", "nix-store --export $(nix-store -qR " + toplevel + ")"},
		Stdout: &closure,
	})
	if err != nil {
		return err
	}
	if export.Code != 0 {
		return fmt.Errorf("exporting %s: %s", toplevel, export.Stderr)
	}
	install, err := h.Run(ctx, rig.Cmd{
		Args:  []string{"/bin/sh", "-c", "nix-store --import >/dev/null && " + toplevels.InstallFirst + " " + toplevel},
		Stdin: &closure,
	})
	if err != nil {
		return err
	}
	if install.Code != 0 {
		return fmt.Errorf("installing %s on %s: %s%s", toplevel, h.Name, install.Stdout, install.Stderr)
	}
	return nil
}
