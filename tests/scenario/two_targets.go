package scenario

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// TwoTargets is the main job: the nodes are announced and switched in list
// order, each over the port that only its node entry or only the client
// configuration names; afterwards each runs the new system, boots it and serves
// its page to the deployer, and the baseline agrees.
func TwoTargets(ctx context.Context, w World) error {
	for _, t := range w.Targets {
		if t.Page == "" {
			return fmt.Errorf("target %s serves no page", t.Node)
		}
		// The deploy can't have gone over the usual port.
		if out, err := w.Deployer.Run(ctx, fmt.Sprintf("ssh -o BatchMode=yes -o ConnectTimeout=5 -F none -p 22 root@%s true", t.Host)); err != nil || out.Code != 255 {
			return fmt.Errorf("target %s answers on port 22: %+v, %v", t.Node, out, err)
		}
	}
	first, err := w.deploy(ctx, "nodes")
	if err != nil {
		return err
	}
	if err := first.exit(0); err != nil {
		return err
	}
	if err := w.announced(first); err != nil {
		return err
	}
	for _, t := range w.Targets {
		toplevel, err := w.toplevel(ctx, "nodes", t.Node)
		if err != nil {
			return err
		}
		if err := w.deployed(ctx, t, toplevel); err != nil {
			return fmt.Errorf("target %s: %w", t.Node, err)
		}
	}
	if w.Baseline != nil {
		toplevel, err := w.toplevel(ctx, "nodes", w.Targets[0].Node)
		if err != nil {
			return err
		}
		if err := w.deployed(ctx, *w.Baseline, toplevel); err != nil {
			return fmt.Errorf("the baseline, which was never deployed to, disagrees: %w", err)
		}
	}
	return nil
}

// announced checks that the nodes were announced, once each, in list order,
// and that each node's result came before the next one's announcement.
func (w World) announced(r run) error {
	var want []string
	for i, t := range w.Targets {
		want = append(want,
			fmt.Sprintf(`deploy-ssh: \[%d/%d\] %s: deploying \S+ to root@%s`, i+1, len(w.Targets), t.Node, t.Host),
			fmt.Sprintf(`%s: switched`, t.Node))
	}
	line := regexp.MustCompile(`^(deploy-ssh: \[\d+/\d+\] .*|[a-z0-9-]+: (switched|unchanged))$`)
	var seen []string
	for l := range strings.Lines(r.Stderr) {
		if l = strings.TrimRight(l, "\n"); line.MatchString(l) {
			seen = append(seen, l)
		}
	}
	if len(seen) != len(want) {
		return fmt.Errorf("announced and ended: %q, want lines like %q\nstderr:\n%s", seen, want, r.Stderr)
	}
	for i := range want {
		if !regexp.MustCompile("^" + want[i] + "$").MatchString(seen[i]) {
			return fmt.Errorf("line %d of announcements and ends is %q, want %q", i+1, seen[i], want[i])
		}
	}
	return nil
}

// toplevel asks Nix on the deployer, not the program, what a node is to run.
func (w World) toplevel(ctx context.Context, attribute, node string) (string, error) {
	return say(ctx, w.Deployer, fmt.Sprintf(
		`cd %s && nix --extra-experimental-features 'nix-command flakes' eval --raw .#%s --apply 'nodes: let t = (builtins.head (builtins.filter (n: n.name == "%s") (nodes.nodes or nodes))).toplevel; in t.outPath or t'`,
		w.Flake, attribute, node))
}

// deployed checks on the host, and from the deployer, that a system is there whole.
func (w World) deployed(ctx context.Context, t Target, toplevel string) error {
	for _, check := range []struct{ what, script, want string }{
		{"the running system", "readlink -f /run/current-system", toplevel},
		{"the system profile", "readlink -f /nix/var/nix/profiles/system", toplevel},
		{"the system of the default boot entry", BootEntry, toplevel},
		{"the files of an unfinished switch", "ls /run/nixos | grep -- -list; true", ""},
		{"the failed units", "systemctl list-units --state=failed --plain --no-legend | cut -d' ' -f1", ""},
		// The unit's own tests keep it from starting without its files, and
		// nothing but file rules makes them.
		{"the state of the web server", "systemctl is-active nginx.service", "active"},
	} {
		got, err := say(ctx, t, check.script)
		if err != nil {
			return fmt.Errorf("%s: %w", check.what, err)
		}
		if got != check.want {
			return fmt.Errorf("%s: got %q, want %q", check.what, got, check.want)
		}
	}
	if err := ordered(ctx, t); err != nil {
		return err
	}
	page, err := say(ctx, w.Deployer, fmt.Sprintf("curl -sS --fail --max-time 20 --cacert %s/%s --connect-to %s:443:%s:443 https://%s/",
		toplevel, t.Certificate, t.ServerName, t.Host, t.ServerName))
	if err != nil {
		return fmt.Errorf("getting the page: %w", err)
	}
	if page != strings.TrimSpace(t.Page) {
		return fmt.Errorf("the page is %q, want %q", page, t.Page)
	}
	// TLS ends on the resource that the closure declares, not merely on one that verifies.
	served, err := say(ctx, w.Deployer, fmt.Sprintf("openssl s_client -connect %s:443 -servername %s </dev/null 2>/dev/null | openssl x509 -fingerprint -sha256 -noout", t.Host, t.ServerName))
	if err != nil {
		return fmt.Errorf("asking for the certificate: %w", err)
	}
	declared, err := say(ctx, w.Deployer, fmt.Sprintf("openssl x509 -fingerprint -sha256 -noout -in %s/%s", toplevel, t.Certificate))
	if err != nil {
		return err
	}
	if served != declared {
		return fmt.Errorf("TLS ends on %s, the closure declares %s", served, declared)
	}
	return nil
}

// BootEntry is a script that prints the toplevel of systemd-boot's default entry;
// see loader.conf(5).
const BootEntry = `entry=$(sed -n 's/^default *//p' /boot/loader/loader.conf)
sed -n 's/^options .*init=\([^ ]*\)\/init.*/\1/p' "/boot/loader/entries/$entry"`

// ordered checks that the file rules were applied before the web server started.
func ordered(ctx context.Context, t Target) error {
	out, err := say(ctx, t, `for unit in systemd-tmpfiles-resetup.service nginx.service; do
systemctl show -P ExecMainStartTimestampMonotonic $unit; systemctl show -P InactiveExitTimestampMonotonic $unit; done | tr '\n' ' '`)
	if err != nil {
		return err
	}
	var rulesMain, rules, webMain, web uint64
	if _, err := fmt.Sscan(out, &rulesMain, &rules, &webMain, &web); err != nil {
		return fmt.Errorf("the start times of the file rules and the web server: %q: %w", out, err)
	}
	if rulesMain > 0 && rulesMain > web {
		return fmt.Errorf("the file rules ran at %d µs, after the web server began to start at %d µs", rulesMain, web)
	}
	return nil
}
