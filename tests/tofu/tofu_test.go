// Package tofu tests the OpenTofu module with the real program against real hosts.
//
// It is a Go module of its own, so that the project doesn't depend on OpenTofu, and is
// run by `make tofu`. The program is the one that the variable TOFU names.
package tofu

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// root is the project's folder.
const root = "../.."

// project and infrastructure are the module and its example on the deployer, lying to
// each other as they do here.
const (
	project        = "/root/project"
	infrastructure = project + "/examples/opentofu"
)

// flake has a system for each host in each generation. Generation "bad" fails on n1.
const flake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      host = name: generation: faults: {
        config.system.build.toplevel = toplevels.mkToplevel { name = "${name}-${generation}"; inherit faults; };
      };
      generation = g: { n1 = host "n1" g { }; n2 = host "n2" g { }; };
    in
    {
      first = toplevels.mkToplevel { name = "first"; };
      one.nixosConfigurations = generation "one";
      nixosConfigurations = generation "two";
      bad = host "n1" "bad" { activate = "fails"; };
      slow = host "n1" "slow" { activateSeconds = 10; };
    };
}
`

type world struct {
	t   *testing.T
	rig *rig.Rig
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := t.Context()
	tofu, err := os.ReadFile(os.Getenv("TOFU"))
	if err != nil {
		t.Fatalf("the variable TOFU must name the tofu program, see the Makefile: %v", err)
	}
	binary := filepath.Join(t.TempDir(), "deploy-ssh")
	build := exec.CommandContext(ctx, "go", "build", "-race", "-o", binary, "./cmd/deploy-ssh")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	r := rig.Start(t, rig.Config{Targets: []rig.Target{rigworld.Target("n1", 22), rigworld.Target("n2", 22)}})
	if err := rigworld.Prepare(ctx, r, binary, flake); err != nil {
		t.Fatal(err)
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Targets {
		if err := rigworld.Install(ctx, r, h, first); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t, r}
	if err := r.Deployer.WriteFile(ctx, "/usr/local/bin/tofu", tofu, 0o755); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"tofu": project + "/tofu", "examples/opentofu": infrastructure} {
		if err := r.Deployer.CopyTree(ctx, os.DirFS(filepath.Join(root, from)), to); err != nil {
			t.Fatal(err)
		}
	}
	// The program's name in the PATH is one that writes down each call.
	if err := r.Deployer.WriteFile(ctx, "/root/bin/deploy-ssh", []byte("#!/bin/sh\necho \"$*\" >>/root/calls\nexec "+rigworld.Program+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.sh("chmod +x " + infrastructure + "/toplevels.sh")
	return w
}

func (w *world) sh(script string) string {
	w.t.Helper()
	out, err := w.rig.Deployer.Sh(w.t.Context(), script)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// tofu runs the program in the example's folder.
func (w *world) tofu(args string) (output string, code int) {
	w.t.Helper()
	result, err := w.rig.Deployer.Run(w.t.Context(), rig.Cmd{Args: []string{"/bin/sh", "-c",
		"cd " + infrastructure + " && export PATH=/root/bin:$PATH GORACE=atexit_sleep_ms=0 TF_CLI_CONFIG_FILE=/dev/null && exec tofu " + args + " 2>&1"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return result.Stdout, result.Code
}

// apply applies, and returns the nodes that deploy-ssh was called for.
func (w *world) apply(wantCode int, flags string) (output string, calls []string) {
	w.t.Helper()
	w.sh("rm -f /root/calls")
	output, code := w.tofu("apply -auto-approve -no-color " + flags)
	if code != wantCode {
		w.t.Fatalf("tofu apply %s: exit code %d, want %d\n%s", flags, code, wantCode, output)
	}
	for line := range strings.Lines(w.sh("cat /root/calls 2>/dev/null; true")) {
		_, rest, _ := strings.Cut(line, "--on ")
		name, _, _ := strings.Cut(rest, " ")
		calls = append(calls, name)
	}
	slices.Sort(calls)
	return output, calls
}

// runs are what the hosts run, by the systems' names.
func (w *world) runs() string {
	w.t.Helper()
	var all []string
	for _, h := range w.rig.Targets {
		out, err := h.Sh(w.t.Context(), "readlink /run/current-system")
		if err != nil {
			w.t.Fatal(err)
		}
		name := strings.TrimPrefix(strings.TrimSpace(out)[len("/nix/store/")+33:], "nixos-system-")
		name, _, _ = strings.Cut(name, "-25.11")
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// variables writes the file of variables of the example.
func (w *world) variables(nodes map[string]map[string]any, toplevels map[string]string) {
	w.t.Helper()
	values := map[string]any{"nodes": nodes}
	if toplevels != nil {
		values["toplevels"] = toplevels
	}
	text, err := json.Marshal(values)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.rig.Deployer.WriteFile(w.t.Context(), infrastructure+"/zz.auto.tfvars.json", text, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) want(what string, got, want any) {
	w.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestOpenTofu(t *testing.T) {
	w := newWorld(t)
	if out, code := w.tofu("fmt -check -recursive -diff " + project); code != 0 {
		t.Errorf("tofu fmt:\n%s", out)
	}
	if out, code := w.tofu("init -no-color"); code != 0 {
		t.Fatalf("tofu init:\n%s", out)
	}
	nodes := map[string]map[string]any{"n1": {"host": "n1"}, "n2": {"host": "n2"}}
	w.variables(nodes, nil)

	// Both hosts, at once: their first keys go to one file.
	w.sh("cd " + infrastructure + " && ./toplevels.sh " + rigworld.Flake)
	out, calls := w.apply(0, "")
	w.want("calls", calls, "[n1 n2]")
	w.want("the hosts run", w.runs(), "n1-two n2-two")
	if strings.Count(out, "switched") < 2 {
		t.Errorf("the output does not say that both were switched:\n%s", out)
	}
	for _, name := range []string{"n1", "n2"} {
		w.sh("ssh-keygen -F " + name + " -f /tmp/deploy-ssh-0/known_hosts")
	}

	// Nothing has changed.
	out, calls = w.apply(0, "")
	w.want("calls", calls, "[]")
	if !strings.Contains(out, "No changes") {
		t.Errorf("not everything is as it was:\n%s", out)
	}

	// One system changes.
	var written struct{ Toplevels map[string]string }
	if err := json.Unmarshal([]byte(w.sh("cat "+infrastructure+"/toplevels.auto.tfvars.json")), &written); err != nil {
		t.Fatal(err)
	}
	toplevels := written.Toplevels
	built := func(attribute string) string {
		return w.sh("cd " + rigworld.Flake + " && nix build --print-out-paths --out-link /root/kept-" + attribute[:3] + " '.#" + attribute + ".config.system.build.toplevel'")
	}
	two := toplevels["n2"]
	toplevels["n2"] = built("one.nixosConfigurations.n2")
	w.variables(nodes, toplevels)
	_, calls = w.apply(0, "")
	w.want("calls", calls, "[n2]")
	w.want("the hosts run", w.runs(), "n1-two n2-one")

	// A setting changes: a call, and a host that is as wanted already.
	nodes["n1"]["options"] = []string{"ConnectTimeout=9"}
	w.variables(nodes, toplevels)
	out, calls = w.apply(0, "")
	w.want("calls", calls, "[n1]")
	if !strings.Contains(out, "unchanged") {
		t.Errorf("the host was not found as wanted:\n%s", out)
	}

	// One fails, and the other is deployed all the same.
	good := toplevels["n1"]
	toplevels["n1"], toplevels["n2"] = built("bad"), two
	w.variables(nodes, toplevels)
	out, calls = w.apply(1, "")
	w.want("calls", calls, "[n1 n2]")
	w.want("n2 runs", strings.Fields(w.runs())[1], "n2-two")
	for _, words := range []string{`module.node["n1"]`, "activation-failed", "Failed to run activate script", "The activation failed.", "not: n1"} {
		if !strings.Contains(out, words) {
			t.Errorf("the output of the failure lacks %q:\n%s", words, out)
		}
	}
	// What failed is tried again although nothing changes, what went well is not.
	_, calls = w.apply(1, "")
	w.want("calls", calls, "[n1]")
	toplevels["n1"] = good
	w.variables(nodes, toplevels)
	_, calls = w.apply(0, "")
	w.want("calls", calls, "[n1]")
	w.want("the hosts run", w.runs(), "n1-two n2-two")

	// A host that shows another key than the pinned one gets no login.
	nodes["n1"]["host_key"] = w.rig.Host("n2").HostKey
	w.variables(nodes, toplevels)
	out, _ = w.apply(1, "")
	if !strings.Contains(out, "host-key-refused") {
		t.Errorf("a foreign key:\n%s", out)
	}
	nodes["n1"]["host_key"] = w.rig.Host("n1").HostKey
	w.variables(nodes, toplevels)
	w.apply(0, "")

	// What makes no sense is refused while planning, or before any host.
	w.variables(nodes, map[string]string{"n1": "/etc/passwd", "n2": two})
	out, calls = w.apply(1, "")
	w.want("calls", calls, "[]")
	if !strings.Contains(out, "Wanted the store path of a built system") {
		t.Errorf("no store path:\n%s", out)
	}
	w.variables(nodes, map[string]string{"n1": "/nix/store/11111111111111111111111111111111-nixos-system-x", "n2": two})
	out, _ = w.apply(1, "")
	if !strings.Contains(out, "is not valid in this machine's store") {
		t.Errorf("a path that isn't there:\n%s", out)
	}

	// An interrupt, as from a terminal, in the middle of a switch: that goes on, and the
	// next apply finds it or its result.
	w.variables(nodes, map[string]string{"n1": built("slow"), "n2": two})
	cut := w.sh(`cd ` + infrastructure + ` && export PATH=/root/bin:$PATH GORACE=atexit_sleep_ms=0 TF_CLI_CONFIG_FILE=/dev/null
setsid env --default-signal=INT tofu apply -auto-approve -no-color >/root/cut 2>&1 & tofu=$!
for try in $(seq 1200); do grep -q 'takes its time: 2' /root/cut && break; sleep 0.1; done
kill -INT -$tofu; wait $tofu; echo "exit code $?"; cat /root/cut`)
	if strings.HasPrefix(cut, "exit code 0") || !strings.Contains(cut, "takes its time: 2") || strings.Contains(cut, "switched") {
		t.Errorf("not interrupted in the middle:\n%s", cut)
	}
	out, calls = w.apply(0, "")
	if !strings.Contains(out, "switched") && !strings.Contains(out, "unchanged") {
		t.Errorf("after the interrupt:\n%s", out)
	}
	w.want("calls", calls, "[n1]")
	w.want("the hosts run", w.runs(), "n1-slow n2-two")

	// Many at once, all on one host under names of their own: each key is saved whole.
	many, same := map[string]map[string]any{}, map[string]string{}
	for i := range 8 {
		name := fmt.Sprint("k", i)
		many[name] = map[string]any{"host": "n2", "options": []string{"HostKeyAlias=" + name}}
		same[name] = two
	}
	w.variables(many, same)
	out, calls = w.apply(0, "-parallelism=8")
	w.want("calls", len(calls), 8)
	for name := range many {
		w.sh("ssh-keygen -F " + name + " -f /tmp/deploy-ssh-0/known_hosts")
	}
	if strings.Count(out, "unchanged") < 8 {
		t.Errorf("not all were unchanged:\n%s", out)
	}

	// The end of the management is not the end of the host's system.
	w.sh("rm -f /root/calls")
	if out, code := w.tofu("destroy -auto-approve -no-color"); code != 0 {
		t.Errorf("tofu destroy:\n%s", out)
	}
	w.want("calls", w.sh("cat /root/calls 2>/dev/null; true"), "")
	w.want("the hosts run", w.runs(), "n1-slow n2-two")
	if left := w.sh("ls -d /tmp/deploy-ssh.* /tmp/deploy-ssh-new.* 2>/dev/null; true"); left != "" {
		t.Errorf("left on the deployer: %s", left)
	}
}
