package toplevels_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/toplevels"
)

// A world is the rig that all tests of this package share: the deployer has
// built every system of testdata/flake.nix, and each target holds all of them,
// runs "base" and has it as its first generation.
type world struct {
	rig *rig.Rig
	// paths are the systems' store paths, by name.
	paths map[string]string
	// free are the targets that no test is using.
	free chan *target
}

// A target is a host with the systems in its store.
type target struct {
	*rig.Host
	paths map[string]string
}

const flake = "path:/root/test"

// targets is how many hosts there are to test on.
const targets = 4

// The tests mostly wait for their hosts, so as many run at once as there are
// hosts, whatever the number of processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(targets)); err != nil {
		panic(err) // testing has that flag
	}
	os.Exit(m.Run())
}

func TestToplevels(t *testing.T) {
	w := start(t)
	t.Run("refusals", w.refusals)
	t.Run("example", w.example)
	for _, group := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"switches", switches},
		{"lock", lock},
		{"interruptions", interruptions},
		{"bus", bus},
		{"units", units},
		{"boot", boot},
		{"contents", contents},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			group.test(t, w)
		})
	}
}

func start(t *testing.T) *world {
	t.Helper()
	files := map[string]rig.File{}
	for name, file := range toplevels.HostFiles() {
		files[name] = rig.File(file)
	}
	// a user whose session has ended is not listed any longer
	files["/usr/lib/systemd/logind.conf.d/test.conf"] = rig.File{Content: "[Login]\nUserStopDelaySec=0\n"}
	// RIG_SUITE is another Debian release to test on: another systemd, another Nix.
	config := rig.Config{Suite: os.Getenv("RIG_SUITE")}
	for i := range targets {
		config.Targets = append(config.Targets, rig.Target{Name: fmt.Sprintf("t%d", i+1), Files: files})
	}
	w := &world{rig: rig.Start(t, config), free: make(chan *target, len(config.Targets))}
	ctx := t.Context()
	deployer := w.rig.Deployer
	must(t, deployer.CopyTree(ctx, os.DirFS("testdata"), "/root/test"))
	must(t, deployer.CopyTree(ctx, toplevels.Tree, "/root/test/toplevels"))

	out := sh(t, deployer, "nix eval --json "+flake+"#systems --apply 'builtins.mapAttrs (name: t: [ t.drvPath t.outPath ])'")
	var systems map[string][2]string
	must(t, json.Unmarshal([]byte(out), &systems))
	w.paths = map[string]string{}
	var drvs, outs []string
	for name, system := range systems {
		drvs = append(drvs, "'"+system[0]+"!out'")
		outs = append(outs, system[1])
		w.paths[name] = system[1]
	}
	sh(t, deployer, "nix-store --realise --add-root /root/systems "+strings.Join(drvs, " "))
	var archive bytes.Buffer
	run(t, deployer, rig.Cmd{
		Args:   []string{"/bin/sh", "-c", "nix-store --export $(nix-store -qR " + strings.Join(outs, " ") + ")"},
		Stdout: &archive,
	})
	for _, host := range w.rig.Targets {
		run(t, host, rig.Cmd{Args: []string{"nix-store", "--import"}, Stdin: bytes.NewReader(archive.Bytes())})
		target := &target{host, w.paths}
		sh(t, host, toplevels.InstallFirst+" "+w.paths["base"])
		if got := target.current(t); got != "base" {
			t.Fatalf("%s after %s: runs %s, want base", host.Name, toplevels.InstallFirst, got)
		}
		w.free <- target
	}
	return w
}

// take gives a test one target, which runs "base" from its boot default and is
// otherwise as if nothing had been done to it, until the test is done.
func (w *world) take(t *testing.T) *target {
	t.Helper()
	target := <-w.free
	t.Cleanup(func() { w.free <- target })
	target.reset(t)
	return target
}

func (h *target) reset(t *testing.T) {
	t.Helper()
	script := fmt.Sprintf(`
		set -e
		while loginctl list-users --no-legend | grep -q .; do sleep 0.1; done
		# most tests leave the host as it was
		if [ "$(readlink -f /run/current-system)" = %[1]s ] && [ "$(echo /nix/var/nix/profiles/system-*-link | xargs readlink)" = %[1]s ] &&
			grep -q " init=%[1]s/" /boot/loader/entries/"$(cd /boot/loader/entries && ls $(sed -n 's/^default //p' ../loader.conf) | sort -V | tail -n 1)" &&
			systemctl is-active -q nginx && systemctl is-active -q sysinit-reactivation.target && [ -z "$(systemctl list-units --failed -q)$(ls /run/nixos | grep -- -list)" ]; then
			exit
		fi
		rm -f /run/nixos/*-list
		nix-env -p /nix/var/nix/profiles/system --set %[1]s
		nix-env -p /nix/var/nix/profiles/system --delete-generations old
		%[1]s/bin/switch-to-configuration switch`, h.paths["base"])
	result := run(t, h.Host, rig.Cmd{Args: []string{"/bin/sh", "-c", script}})
	if result.Code != 0 {
		t.Fatalf("bringing %s back to base: exit code %d: %s", h.Name, result.Code, result.Stderr)
	}
}

// name is the name of the system at a store path.
func (h *target) name(storePath string) string {
	for name, candidate := range h.paths {
		if candidate == storePath {
			return name
		}
	}
	return storePath
}

func (h *target) current(t *testing.T) string {
	t.Helper()
	return h.name(strings.TrimSpace(sh(t, h.Host, "readlink -f /run/current-system")))
}

var initOption = regexp.MustCompile(`init=(\S+)/init`)

// bootDefault is the name of the system that would boot.
func (h *target) bootDefault(t *testing.T) string {
	t.Helper()
	out := sh(t, h.Host, `cat /boot/loader/entries/"$(cd /boot/loader/entries && ls $(sed -n 's/^default //p' ../loader.conf) | sort -V | tail -n 1)"`)
	found := initOption.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("default boot entry of %s has no init=: %q", h.Name, out)
	}
	return h.name(found[1])
}

// lists are the list files that a switch left.
func (h *target) lists(t *testing.T) []string {
	t.Helper()
	return strings.Fields(sh(t, h.Host, "cd /run/nixos && ls | grep -- '-list$' || true"))
}

// script has the variable of each system set to its path, with _ for -.
func (h *target) script(body string) []string {
	var b strings.Builder
	for name, storePath := range h.paths {
		fmt.Fprintf(&b, "%s=%s\n", strings.ReplaceAll(name, "-", "_"), storePath)
	}
	b.WriteString("stc=bin/switch-to-configuration\n")
	return []string{"/bin/bash", "-c", b.String() + body}
}

// do runs a bash script for its output and exit code.
func (h *target) do(t *testing.T, body string) rig.Result {
	t.Helper()
	return run(t, h.Host, rig.Cmd{Args: h.script(body)})
}

func (h *target) switchTo(t *testing.T, system, action string, env ...string) rig.Result {
	t.Helper()
	if h.paths[system] == "" {
		t.Fatalf("testdata/flake.nix has no system %q", system)
	}
	return run(t, h.Host, rig.Cmd{Args: []string{h.paths[system] + "/bin/switch-to-configuration", action}, Env: env})
}

// state is what a switch can leave behind.
type state struct {
	Code    int
	Current string
	Default string
	Lists   []string
}

func (h *target) state(t *testing.T, code int) state {
	t.Helper()
	return state{code, h.current(t), h.bootDefault(t), h.lists(t)}
}

func wantState(t *testing.T, h *target, result rig.Result, want state) {
	t.Helper()
	if want.Lists == nil {
		want.Lists = []string{}
	}
	got := h.state(t, result.Code)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s\nstdout: %s\nstderr: %s", diff, tail(result.Stdout), tail(result.Stderr))
	}
}

// wantLines fails unless each wanted text is in the output as whole lines.
func wantLines(t *testing.T, stream, got string, want ...string) {
	t.Helper()
	for _, lines := range want {
		if !strings.Contains("\n"+got, "\n"+lines+"\n") {
			t.Errorf("%s has no line %q:\n%s", stream, lines, tail(got))
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

func run(t *testing.T, host *rig.Host, c rig.Cmd) rig.Result {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute,
		fmt.Errorf("%s on %s: not done within 2 minutes", path.Base(c.Args[0]), host.Name))
	defer cancel()
	result, err := host.Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// sh runs a script that must succeed.
func sh(t *testing.T, host *rig.Host, script string) string {
	t.Helper()
	result := run(t, host, rig.Cmd{Args: []string{"/bin/sh", "-c", script}})
	if result.Code != 0 {
		t.Fatalf("%s: %s: exit code %d: %s%s", host.Name, script, result.Code, tail(result.Stdout), tail(result.Stderr))
	}
	return result.Stdout
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
