package scenario

import (
	"context"
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Unchanged runs a deploy again that went well: every node is unchanged, at the
// price of one connection and one command each.
func Unchanged(ctx context.Context, w World) error {
	since := make([]string, len(w.Targets))
	for i, t := range w.Targets {
		var err error
		if since[i], err = say(ctx, t, "journalctl --sync; date +%s.%N"); err != nil {
			return err
		}
	}
	r, err := w.records(ctx, "nodes")
	if err != nil {
		return err
	}
	if err := r.exit(0); err != nil {
		return err
	}
	for i, t := range w.Targets {
		if got := r.results()[t.Node].Verdict; got != verdict.Unchanged {
			return fmt.Errorf("%s is %s, want %s", t.Node, got, verdict.Unchanged)
		}
		for text, want := range map[string]string{
			"Accepted publickey for": "1",
			"Starting session":       "1",
		} {
			got, err := say(ctx, t, fmt.Sprintf("journalctl --sync; journalctl -t sshd -t sshd-session --since @%s -o cat | grep -c '%s'; true", since[i], text))
			if err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("%s: sshd logged %q %s times, want %s", t.Node, text, got, want)
			}
		}
	}
	return nil
}

// OneDown deploys three nodes of which the middle one has no sshd: it is named,
// the others are deployed, and the run fails.
func OneDown(ctx context.Context, w World) error {
	r, err := w.records(ctx, "oneDown")
	if err != nil {
		return err
	}
	want := map[string]verdict.Verdict{
		w.Targets[0].Node: verdict.Switched, "gone": verdict.Unreachable, w.Targets[1].Node: verdict.Switched,
	}
	if err := r.verdicts(want); err != nil {
		return err
	}
	if summary := r.Records[len(r.Records)-1].Summary; summary == nil || strings.Join(summary.Failed, " ") != "gone" {
		return fmt.Errorf("the summary names %+v as failed, want gone", summary)
	}
	if err := r.exit(1); err != nil {
		return err
	}
	// And as a person sees it.
	text, err := w.deploy(ctx, "oneDown")
	if err != nil {
		return err
	}
	for _, part := range []string{"\ngone  unreachable", "Connection refused", "2 of 3 nodes as wanted", "not: gone"} {
		if !strings.Contains(text.Stdout, part) {
			return fmt.Errorf("the summary lacks %q:\n%s", part, text.Stdout)
		}
	}
	return text.exit(1)
}

// BrokenSystems deploys a map in which one system does not evaluate, one can't
// even be asked for (its error can't be caught), and one does not build: each is
// named with Nix's own words, and the others are deployed.
func BrokenSystems(ctx context.Context, w World) error {
	r, err := w.records(ctx, "brokenSystems")
	if err != nil {
		return err
	}
	if err := r.verdicts(map[string]verdict.Verdict{
		"throws": verdict.EvalFailed, w.Targets[0].Node: verdict.Switched, "aborts": verdict.EvalFailed,
		"unbuildable": verdict.BuildFailed, w.Targets[1].Node: verdict.Switched,
	}); err != nil {
		return err
	}
	for node, words := range map[string]string{
		"throws": "the toplevel of throws throws, as asked for", "aborts": "the toplevel of aborts aborts, as asked for",
		"unbuildable": "exit code",
	} {
		if reason := r.results()[node].Reason; !strings.Contains(reason, words) {
			return fmt.Errorf("the reason of %s lacks Nix's words %q: %s", node, words, reason)
		}
	}
	return r.exit(1)
}

// verdicts checks each node's verdict, and that there are no others.
func (r run) verdicts(want map[string]verdict.Verdict) error {
	results := r.results()
	for node, v := range want {
		if got := results[node].Verdict; got != v {
			return fmt.Errorf("%s is %q (%s), want %q\nstderr:\n%s", node, got, results[node].Reason, v, r.Stderr)
		}
	}
	if len(results) != len(want) {
		return fmt.Errorf("there are %d results, want %d: %v", len(results), len(want), results)
	}
	return nil
}

// BadInput gives the program what it must refuse before any host is contacted:
// exit code 2, a text that names what is wrong, and no connection.
func BadInput(ctx context.Context, w World) error {
	var before []string
	count := "journalctl --sync; journalctl -t sshd -t sshd-session -o cat | grep -c 'Connection from'; true"
	for _, t := range w.Targets {
		n, err := say(ctx, t, count)
		if err != nil {
			return err
		}
		before = append(before, n)
	}
	for _, c := range []struct {
		attribute, env string
		words          []string
	}{
		{"nosuch", "", []string{"nosuch"}},
		{"lib", "", []string{"lib"}},
		{"bad.mapThrows", "", []string{"the map itself throws"}},
		{"bad.duplicates", "", []string{"web1"}},
		{"bad.illegalName", "", []string{"web 1"}},
		{"bad.noStorePath", "", []string{"web1", "toplevel", "/etc/passwd"}},
		{"bad.unknownField", "", []string{"web1", "hots", "host"}},
		{"bad.unknownSSHField", "", []string{"web1", "optoins", "options"}},
		{"nodes", `DEPLOY_SSH_NODES='{"nodes": {'`, []string{"DEPLOY_SSH_NODES"}},
		{"nodes", `DEPLOY_SSH_NODES='{"nodes": {"web1": {"usr": "x"}}}'`, []string{"DEPLOY_SSH_NODES", "web1", "usr", "user"}},
		{"nodes", `DEPLOY_SSH_NODES='{"nodes": {"wbe1": {"user": "x"}}}'`, []string{"DEPLOY_SSH_NODES", "wbe1", "web1"}},
		{"nodes", `DEPLOY_SSH_USR=x`, []string{"DEPLOY_SSH_USR", "DEPLOY_SSH_USER"}},
	} {
		r, err := w.call(ctx, c.attribute, c.env)
		if err != nil {
			return err
		}
		if r.Code != 2 {
			return fmt.Errorf("%s .#%s: exit code %d, want 2\n%s%s", c.env, c.attribute, r.Code, r.Stdout, r.Stderr)
		}
		for _, word := range c.words {
			if !strings.Contains(r.Stderr, word) {
				return fmt.Errorf("%s .#%s: the error lacks %q:\n%s", c.env, c.attribute, word, r.Stderr)
			}
		}
		if r.Stdout != "" {
			return fmt.Errorf("%s .#%s: standard output is not empty: %s", c.env, c.attribute, r.Stdout)
		}
	}
	for i, t := range w.Targets {
		n, err := say(ctx, t, count)
		if err != nil {
			return err
		}
		if n != before[i] {
			return fmt.Errorf("%s: there were connections: %s before, %s after", t.Node, before[i], n)
		}
	}
	return nil
}
