package scenario_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/packages"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

const planFlake = `{ outputs = { self }: import ./map.nix { }; }`

// The systems and the map are a file of their own, so that a test can change it.
const planMap = `{ }:
let
  toplevels = import ./toplevels { };
  tool = version: { "uses-tool.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/cat ${builtins.toFile "tool-${version}" "tool\n"}\n"; }; };
  node = name: port: toplevel: { inherit name toplevel; host = name; ssh.options = [ "Port=${toString port}" ]; };
  first = toplevels.mkToplevel { name = "first"; units = tool "1.0"; };
  next = toplevels.mkToplevel { name = "next"; units = tool "1.1"; web.page = "next\n"; payload.incompressible = 3000000; };
  other = toplevels.mkToplevel { name = "other"; units = tool "1.0"; web.page = "other\n"; };
  web1 = node "web1" 2201 next;
  web2 = node "web2" 2202 first;
  closed = node "closed" 1 next // { host = "web1"; };
  broken = node "broken" 2201 (derivation { name = "broken"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "exit 3" ]; }) // { host = "web1"; };
  thrown = node "thrown" 2201 (throw "no such system");
in {
  inherit first;
  nodes = [ web1 web2 ];
  all = [ web1 web2 closed ];
  elsewhere = [ (web1 // { toplevel = other; }) web2 ];
  bad = [ broken thrown ];
}
`

// planWorld is two hosts that run and boot the first system.
func planWorld(t *testing.T) *planner {
	r := rig.Start(t, rig.Config{Targets: []rig.Target{rigworld.Target("web1", 2201), rigworld.Target("web2", 2202)}})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), planFlake); err != nil {
		t.Fatal(err)
	}
	if err := r.Deployer.WriteFile(ctx, rigworld.Flake+"/map.nix", []byte(planMap), 0o644); err != nil {
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
		if err := h.Reboot(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return &planner{r: r, web1: r.Host("web1"), web2: r.Host("web2"), first: first}
}

type planner struct {
	r          *rig.Rig
	web1, web2 *rig.Host
	first      string
}

// sh runs a script on a host, which must go well.
func (w *planner) sh(t *testing.T, h *rig.Host, script string) string {
	t.Helper()
	out, err := h.Sh(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// call runs the program on the deployer.
func (w *planner) call(t *testing.T, args string, want int, env ...string) rig.Result {
	t.Helper()
	result, err := w.r.Deployer.Run(t.Context(), rig.Cmd{Args: []string{"/bin/bash", "-c", strings.Join(env, " ") + " deploy-ssh " + args}, Dir: rigworld.Flake})
	if err != nil {
		t.Fatal(err)
	}
	if result.Code != want {
		t.Fatalf("%s: exit code %d, want %d\n%s%s", args, result.Code, want, result.Stdout, result.Stderr)
	}
	return result
}

// records are those of a call with --json.
func (w *planner) records(t *testing.T, args string, want int) []report.Record {
	t.Helper()
	result := w.call(t, args+" --json", want)
	var all []report.Record
	for line := range strings.Lines(result.Stdout) {
		var r report.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

func (w *planner) plans(t *testing.T, args string, want int) map[string]report.Planned {
	t.Helper()
	all := map[string]report.Planned{}
	for _, r := range w.records(t, "plan "+args, want) {
		if r.Planned != nil {
			all[r.Planned.Node] = *r.Planned
		}
	}
	return all
}

func (w *planner) results(t *testing.T, args string, want int) map[string]report.Result {
	t.Helper()
	all := map[string]report.Result{}
	for _, r := range w.records(t, args, want) {
		if r.Result != nil {
			all[r.Result.Node] = *r.Result
		}
	}
	return all
}

// state lists what of a host a deploy would change, and what it would leave behind.
func (w *planner) state(t *testing.T, h *rig.Host) string {
	t.Helper()
	return w.sh(t, h, `cd /; ls -1 /nix/store | sort; ls -lR --time-style=full-iso /nix/var/nix/profiles /nix/var/nix/gcroots
readlink -f /run/current-system; find /run/nixos -type f ! -name '*.lock' 2>/dev/null | xargs -r ls -l --time-style=full-iso; find /run -maxdepth 1 -name 'deploy-ssh*' -print; find /run/deploy-ssh 2>/dev/null | sort
find /boot -type f | sort | xargs md5sum; find /tmp /root -name '*deploy*'`)
}

func has(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

// A plan tells what an apply would do and touches nothing; an apply of it does that,
// and only on hosts that have not moved since.
func TestPlan(t *testing.T) {
	t.Parallel()
	w := planWorld(t)
	t.Run("tells and touches nothing", w.tells)
	t.Run("the host's caches", w.caches)
	t.Run("files that are no such plan", w.files)
	t.Run("the map has changed", w.changedMap)
	t.Run("somebody switched the host", w.switched)
	t.Run("somebody rebooted the host", w.rebooted)
	t.Run("a host that was down", w.wasDown)
	t.Run("dry activation", w.dry)
	t.Run("applied", w.applied)
	t.Run("systems that don't build", w.unbuilt)
	t.Run("status", w.status)
}

func (w *planner) tells(t *testing.T) {
	web1, web2 := w.state(t, w.web1), w.state(t, w.web2)
	const once = "1 Accepted publickey for root 1 Starting session: command"
	// What sshd has seen since then, in logins and sessions.
	cost := func(h *rig.Host) string {
		return w.sh(t, h, "journalctl -q --no-pager | grep -o -e 'Accepted publickey for root' -e 'Starting session: command' | sort | uniq -c | sed 's/^ *//' | tr '\\n' ' '")
	}
	if before := cost(w.web1) + cost(w.web2); before != "" {
		t.Fatalf("logged in to before: %s", before)
	}
	plans := w.plans(t, ".#all", verdict.ExitFailed)
	if cost1, cost2 := cost(w.web1), cost(w.web2); cost1 != once || cost2 != once {
		t.Errorf("the plan cost %q and %q, want one login and one session of each", cost1, cost2)
	}
	if p := plans["web1"]; p.Verdict != "" || fmt.Sprint(p.Actions) != "[copy activate boot-entry]" || !p.Built || p.NextGeneration != 2 {
		t.Errorf("web1 is planned as %q %v, built %v, generation %d", p.Verdict, p.Actions, p.Built, p.NextGeneration)
	} else {
		if p.Now == nil || p.Now.Running != w.first || p.Now.Label == "" || p.Now.BootID == "" || p.Now.MachineID == "" || p.WantedLabel == "" {
			t.Errorf("web1 is seen as %+v, wanted label %q", p.Now, p.WantedLabel)
		}
		if p.Copy == nil || p.Copy.NarBytes < 3_000_000 || p.Copy.Missing == 0 || p.Copy.Missing > p.Copy.Paths || p.Copy.CachesAsked {
			t.Errorf("to copy: %+v", p.Copy)
		}
		if p.Size == nil || p.Size.After-p.Size.Before < 2_900_000 || p.Size.Before <= 0 {
			t.Errorf("sizes: %+v", p.Size)
		}
		if p.Space == nil || p.Space.StoreFree <= 0 || p.Space.StoreNeeds != p.Copy.NarBytes {
			t.Errorf("space: %+v", p.Space)
		}
		want := []packages.Change{{Name: "tool", Before: []string{"1.0"}, After: []string{"1.1"}}}
		if p.Packages == nil || cmp.Diff(want, p.Packages.Changed) != "" || len(p.Packages.Added) == 0 || len(p.Packages.Removed) == 0 {
			t.Errorf("packages: %+v, want the change %+v and others", p.Packages, want)
		}
		// The closure as it is, counted by Nix itself.
		size := w.sh(t, w.web1, "sum=0; for n in $(nix-store -qR /run/current-system | xargs nix-store -q --size); do sum=$((sum + n)); done; echo $sum")
		if p.Size != nil && fmt.Sprint(p.Size.Before) != size {
			t.Errorf("the size before is %d, want %s", p.Size.Before, size)
		}
	}
	if p := plans["web2"]; p.Verdict != verdict.Unchanged || len(p.Actions) > 0 || p.Now == nil || p.Copy != nil {
		t.Errorf("web2 is planned as %+v", p)
	}
	if p := plans["closed"]; p.Verdict != verdict.Unreachable || p.Now != nil || !strings.Contains(p.Reason, "refused") {
		t.Errorf("closed is planned as %+v", p)
	}
	text := w.call(t, "plan .#all --out all.plan", verdict.ExitFailed)
	has(t, text.Stdout, "web1 (root@web1): copy, activate, make the boot entry", "generation  1 → 2", "tool 1.0 → 1.1",
		"closed (root@web1): unreachable", "1 of 3 nodes would change, 1 as wanted")
	for line := range strings.Lines(text.Stdout) {
		if len([]rune(line)) > 81 && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("longer than 80 columns: %q", line)
		}
	}
	has(t, text.Stderr, "deploy-ssh apply --plan all.plan")
	if left := w.sh(t, w.r.Deployer, "cd "+rigworld.Flake+" && stat -c %a all.plan && ls -A | grep -c plan"); left != "600\n1" {
		t.Errorf("the file's mode and what is beside it: %q", left)
	}
	if now := w.state(t, w.web1); now != web1 {
		t.Errorf("the plan left something on web1 (-before +after):\n%s", cmp.Diff(web1, now))
	}
	if now := w.state(t, w.web2); now != web2 {
		t.Errorf("the plan left something on web2 (-before +after):\n%s", cmp.Diff(web2, now))
	}
	if p := w.plans(t, ".#all --no-build --on web1", verdict.ExitGood)["web1"]; !p.Built || p.Copy == nil {
		t.Errorf("what is built already is not known with --no-build: %+v", p)
	}
}

// What a cache of the host has need not be sent.
func (w *planner) caches(t *testing.T) {
	d := w.r.Deployer
	next := w.plans(t, ".#nodes --on web1", verdict.ExitGood)["web1"].Wanted
	var cache strings.Builder
	if result, err := d.Run(t.Context(), rig.Cmd{Args: []string{"sh", "-c", "nix copy --to file:///root/cache $(nix-store -qR " + next +
		" | grep payload) && tar -C /root/cache -c ."}, Stdout: &cache}); err != nil || result.Code != 0 {
		t.Fatal(err, result.Stderr)
	}
	if result, err := w.web1.Run(t.Context(), rig.Cmd{Args: []string{"sh", "-c", "mkdir -p /srv/cache && tar -C /srv/cache -x"}, Stdin: strings.NewReader(cache.String())}); err != nil || result.Code != 0 {
		t.Fatal(err, result.Stderr)
	}
	w.sh(t, w.web1, "cp /etc/nix/nix.conf /root/nix.conf && sed -i '/^substituters/d' /etc/nix/nix.conf && echo 'substituters = file:///srv/cache http://127.0.0.1:8001' >>/etc/nix/nix.conf")
	before := w.state(t, w.web1)
	p := w.plans(t, ".#nodes --on web1", verdict.ExitGood)["web1"]
	if p.Copy == nil || !p.Copy.CachesAsked || p.Copy.InCaches != 1 || p.Copy.InCachesBytes < 3_000_000 || p.Copy.Missing < 2 {
		t.Errorf("to copy: %+v, want one path of some in the caches", p.Copy)
	}
	has(t, strings.Join(p.Warnings, "\n"), "does not answer: http://127.0.0.1:8001")
	if p := w.plans(t, ".#nodes --on web1 --no-substitute", verdict.ExitGood)["web1"]; p.Copy == nil || p.Copy.CachesAsked {
		t.Errorf("to copy: %+v, want no cache asked", p.Copy)
	}
	if now := w.state(t, w.web1); now != before {
		t.Errorf("the plan left something on web1 (-before +after):\n%s", cmp.Diff(before, now))
	}
	w.sh(t, w.web1, "cp /root/nix.conf /etc/nix/nix.conf")
}

func (w *planner) files(t *testing.T) {
	w.plans(t, ".#nodes --out good.plan", verdict.ExitGood)
	for _, tt := range []struct{ name, script, args, want string }{
		{"missing", "", "--plan none.plan", "no such file"},
		{"a directory", "", "--plan .", "no regular file"},
		{"a pipe", "mkfifo pipe.plan", "--plan pipe.plan", "no regular file"},
		{"empty", "install -m 600 /dev/null x.plan", "--plan x.plan", "ends early"},
		{"foreign", `echo '{"planned_values":{}}' >x.plan`, "--plan x.plan", "no plan of deploy-ssh"},
		{"cut", "head -c 300 good.plan >x.plan", "--plan x.plan", "ends early"},
		{"edited", "sed 's/\"web1\"/\"web2\"/' good.plan >x.plan", "--plan x.plan", "changed after it was made"},
		{"newer", "sed 's/\"version\": 1/\"version\": 9/' good.plan >x.plan", "--plan x.plan", "newer deploy-ssh"},
		{"writable by others", "cp good.plan x.plan; chmod 666 x.plan", "--plan x.plan", "others than its owner"},
		{"another user's", "cp good.plan x.plan; chmod 600 x.plan; chown 1234 x.plan", "--plan x.plan", "another user"},
		{"a map beside it", "", ".#nodes --plan good.plan", "the plan names its map"},
		{"nodes beside it", "", "--plan good.plan --on web1", "--on with --plan"},
		{"a build", "", "--plan good.plan --goal build", "built"},
		{"arguments for Nix", "", "--plan good.plan -- --refresh", "without arguments for Nix"},
	} {
		w.sh(t, w.r.Deployer, "cd "+rigworld.Flake+" && rm -f x.plan && umask 077; "+tt.script)
		result := w.call(t, tt.args, verdict.ExitUsage)
		if !strings.Contains(result.Stderr, tt.want) || result.Stdout != "" {
			t.Errorf("%s: want %q in:\n%s%s", tt.name, tt.want, result.Stdout, result.Stderr)
		}
	}
	result := w.call(t, "plan .#nodes --out /nowhere/x.plan", verdict.ExitUsage)
	has(t, result.Stderr, "/nowhere")
	w.sh(t, w.r.Deployer, "cd "+rigworld.Flake+" && rm -f x.plan pipe.plan")
}

// Whatever of the map or the settings is another, no host is contacted.
func (w *planner) changedMap(t *testing.T) {
	change := func(from, to string) {
		t.Helper()
		w.sh(t, w.r.Deployer, "cd "+rigworld.Flake+" && sed -i 's|"+from+"|"+to+"|' map.nix && grep -qF '"+to+"' map.nix")
	}
	w.plans(t, ".#nodes --out map.plan", verdict.ExitGood)
	w.plans(t, ".#nodes --on web2 --out web2.plan", verdict.ExitGood)
	for _, tt := range []struct{ from, to, want string }{
		{"web2 = node \"web2\" 2202", "web2 = node \"web2\" 2299", "node web2: options"},
		{"nodes = . web1 web2 .", "nodes = [ web2 web1 ]", "order"},
		{"nodes = . web1 web2 .", "nodes = [ web1 ]", "node web2 is gone"},
		{"nodes = . web1 web2 .", "nodes = [ web1 closed web2 ]", "new: closed"},
	} {
		w.sh(t, w.r.Deployer, "cp "+rigworld.Flake+"/map.nix /root/map.nix")
		change(tt.from, tt.to)
		result := w.call(t, "apply --plan map.plan", verdict.ExitUsage)
		has(t, result.Stderr, "changed since the plan", tt.want)
		w.sh(t, w.r.Deployer, "cp /root/map.nix "+rigworld.Flake+"/map.nix")
	}
	result := w.call(t, "apply --plan map.plan", verdict.ExitUsage, "DEPLOY_SSH_USER=somebody")
	has(t, result.Stderr, `user is "somebody", and was "root"`)
	// Another node's place in the map is no matter of a plan that hasn't it.
	w.sh(t, w.r.Deployer, "cp "+rigworld.Flake+"/map.nix /root/map.nix")
	change("nodes = . web1 web2 .", "nodes = [ web2 ]")
	if got := w.results(t, "apply --plan web2.plan", verdict.ExitGood)["web2"]; got.Verdict != verdict.Unchanged {
		t.Errorf("web2 is %s", got.Verdict)
	}
	w.sh(t, w.r.Deployer, "cp /root/map.nix "+rigworld.Flake+"/map.nix")
	// A system that is gone.
	w.plans(t, ".#elsewhere --on web1 --out gone.plan", verdict.ExitGood)
	w.sh(t, w.r.Deployer, "cd "+rigworld.Flake+" && nix-store --delete $(grep -o '/nix/store/[^\"]*test-other' gone.plan | head -n 1) >/dev/null")
	result = w.call(t, "apply --plan gone.plan", verdict.ExitUsage)
	has(t, result.Stderr, "not in this machine's store", "node web1: /nix/store/")
	w.sh(t, w.r.Deployer, "cd "+rigworld.Flake+" && rm -f *.plan")
}

// stale applies a plan to web1, which must be left alone for a reason.
func (w *planner) stale(t *testing.T, plan string, reasons ...string) {
	t.Helper()
	before := w.state(t, w.web1)
	results := w.results(t, "apply --plan "+plan+" --settle 0s", verdict.ExitFailed)
	if got := results["web1"]; got.Verdict != verdict.Stale || got.To != nil {
		t.Errorf("web1 is %s (%s)", got.Verdict, got.Reason)
	} else {
		has(t, got.Reason, reasons...)
	}
	if got := results["web2"]; got.Verdict != verdict.Unchanged {
		t.Errorf("web2 is %s (%s)", got.Verdict, got.Reason)
	}
	if now := w.state(t, w.web1); now != before {
		t.Errorf("a host that moved was touched (-before +after):\n%s", cmp.Diff(before, now))
	}
}

func (w *planner) switched(t *testing.T) {
	w.plans(t, ".#nodes --out p.plan", verdict.ExitGood)
	w.call(t, ".#elsewhere --on web1 --settle 0s", verdict.ExitGood)
	w.stale(t, "p.plan", "it runs", "test-other", "and the plan has seen "+w.first, "boots")
	text := w.call(t, "--plan p.plan", verdict.ExitFailed)
	has(t, text.Stderr, "1 of 2 hosts moved since the plan was made and were left alone; plan again: web1")
}

func (w *planner) rebooted(t *testing.T) {
	w.plans(t, ".#nodes --out p.plan", verdict.ExitGood)
	if err := w.web1.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.stale(t, "p.plan", "it was rebooted")
}

func (w *planner) wasDown(t *testing.T) {
	w.sh(t, w.web1, "systemctl mask --runtime --now ssh.service")
	if p := w.plans(t, ".#nodes --out p.plan", verdict.ExitFailed)["web1"]; p.Verdict != verdict.Unreachable {
		t.Errorf("web1 is planned as %+v", p)
	}
	w.sh(t, w.web1, "systemctl unmask --runtime ssh.service && systemctl start ssh.service")
	w.stale(t, "p.plan", "has not seen this host", "unreachable")
}

// Only a system that is on the host can tell what it would do to units there.
func (w *planner) dry(t *testing.T) {
	p := w.plans(t, ".#nodes --on web1 --dry-activate", verdict.ExitGood)["web1"]
	if p.Units != nil || !strings.Contains(p.NoUnits, "not on the host") {
		t.Errorf("units %+v, %q, of a system that isn't there", p.Units, p.NoUnits)
	}
	w.call(t, ".#nodes --on web1 --goal push", verdict.ExitGood)
	before := w.state(t, w.web1)
	p = w.plans(t, ".#nodes --on web1 --dry-activate", verdict.ExitGood)["web1"]
	if p.Units == nil || p.NoUnits != "" || !slices.Contains(slices.Concat(p.Units.Restart, p.Units.Start, p.Units.Stop), "nginx.service") {
		t.Errorf("units %+v, %q", p.Units, p.NoUnits)
	}
	if p.Copy == nil || p.Copy.Missing != 0 || fmt.Sprint(p.Actions) != "[activate boot-entry]" {
		t.Errorf("%v, to copy %+v", p.Actions, p.Copy)
	}
	if now := w.state(t, w.web1); now != before {
		t.Errorf("the dry activation left something (-before +after):\n%s", cmp.Diff(before, now))
	}
}

// A plan is applied as it was made, whatever the flake's systems are by then, and can
// be applied again.
func (w *planner) applied(t *testing.T) {
	wanted := w.plans(t, ".#nodes --out p.plan", verdict.ExitGood)["web1"]
	w.sh(t, w.r.Deployer, "cd "+rigworld.Flake+" && sed -i 's/next.n/later\\\\n/' map.nix && grep -q later map.nix")
	got := w.results(t, "apply --plan p.plan --settle 0s", verdict.ExitGood)
	if got["web1"].Verdict != verdict.Switched || got["web2"].Verdict != verdict.Unchanged {
		t.Errorf("web1 is %s (%s), web2 %s", got["web1"].Verdict, got["web1"].Reason, got["web2"].Verdict)
	}
	if runs := w.sh(t, w.web1, "readlink -f /run/current-system"); runs != wanted.Wanted {
		t.Errorf("web1 runs %s, want the planned %s", runs, wanted.Wanted)
	}
	if to := got["web1"].To; to == nil || to.Generation != wanted.NextGeneration {
		t.Errorf("web1 came to %+v, planned was generation %d", to, wanted.NextGeneration)
	}
	again := w.results(t, "apply --plan p.plan --settle 0s", verdict.ExitGood)
	if again["web1"].Verdict != verdict.Unchanged {
		t.Errorf("applied again, web1 is %s (%s)", again["web1"].Verdict, again["web1"].Reason)
	}
	// Without a flake the nodes are the environment's.
	env := `DEPLOY_SSH_NODES='{"nodes": {"web1": {"host": "web1", "options": ["Port=2201"]}}}'`
	w.call(t, "plan --store-path web1="+wanted.Wanted+" --out env.plan", verdict.ExitGood, env)
	has(t, w.call(t, "apply --plan env.plan", verdict.ExitGood, env).Stdout, "web1  unchanged")
	has(t, w.call(t, "apply --plan env.plan", verdict.ExitUsage, strings.Replace(env, "2201", "2299", 1)).Stderr, "node web1: options is")
	has(t, w.call(t, "apply --plan env.plan", verdict.ExitUsage).Stderr, "web1")
	// A path of a key means what it meant then, also from another directory.
	key := "DEPLOY_SSH_KEY=id"
	w.sh(t, w.r.Deployer, "cp -p /root/.ssh/id_ed25519 "+rigworld.Flake+"/id")
	w.call(t, "plan --store-path web1="+wanted.Wanted+" --out key.plan", verdict.ExitGood, env, key)
	has(t, w.call(t, "apply --plan "+rigworld.Flake+"/key.plan", verdict.ExitGood, "cd / &&", env, key).Stdout, "web1  unchanged")
	w.sh(t, w.r.Deployer, "cd "+rigworld.Flake+" && sed -i 's/later.n/next\\\\n/' map.nix")
}

func (w *planner) unbuilt(t *testing.T) {
	plans := w.plans(t, ".#bad --out bad.plan", verdict.ExitFailed)
	if plans["broken"].Verdict != verdict.BuildFailed || plans["thrown"].Verdict != verdict.EvalFailed {
		t.Errorf("planned: %+v", plans)
	}
	results := w.results(t, "apply --plan bad.plan", verdict.ExitFailed)
	if results["broken"].Verdict != verdict.BuildFailed || results["thrown"].Verdict != verdict.EvalFailed || !strings.Contains(results["thrown"].Reason, "no such system") {
		t.Errorf("applied: %+v", results)
	}
	p := w.plans(t, ".#bad --on broken --no-build", verdict.ExitGood)["broken"]
	if p.Built || p.Now == nil || p.Packages != nil || p.Copy != nil || p.Verdict != "" {
		t.Errorf("without a build: %+v", p)
	}
	has(t, w.call(t, "plan .#bad --on broken --no-build", verdict.ExitGood).Stdout, "the system is not built")
}

func (w *planner) status(t *testing.T) {
	seen := map[string]report.Status{}
	for _, r := range w.records(t, "status .#elsewhere", verdict.ExitDrift) {
		if r.Status != nil {
			seen[r.Status.Node] = *r.Status
		}
	}
	web1, web2 := seen["web1"], seen["web2"]
	if fmt.Sprint(web1.Drift) != "[runs another system boots another system]" || len(web2.Drift) != 0 {
		t.Errorf("drift: %q and %q", web1.Drift, web2.Drift)
	}
	if web1.Running != web1.Profile || web1.Running != web1.BootEntry || web1.Booted == web1.Running || web1.Booted == "" || web1.Label == "" {
		t.Errorf("web1 is seen as %+v", web1)
	}
	if n := len(web1.Generations); n != 3 || web1.Generations[n-1].System != web1.Running || web1.Generations[0].System != w.first ||
		web1.Generations[0].Number != 1 || web1.Generations[0].Label == "" || web1.Generations[0].Time.Year() < 2000 {
		t.Errorf("generations of web1: %+v", web1.Generations)
	}
	if run := web1.LastRun; run == nil || run.Name != "boot" || run.State != "ended" || run.ExitStatus != "0" || run.System != web1.Running {
		t.Errorf("web1's last run: %+v", run)
	}
	has(t, w.call(t, "status .#nodes -v", verdict.ExitGood).Stdout, "web1  as wanted  3", "booted: ", "generation 1 of ", "(wanted, runs, boots)")
}
