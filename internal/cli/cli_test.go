package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// call runs the program in this process. Its PATH leads nowhere, so that nothing
// but the command line is judged.
func call(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), Process{Args: args, Env: append([]string{"PATH=/nowhere"}, env...), Dir: t.TempDir(), Stdout: &out, Stderr: &errs})
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		env  []string
		code int
		out  []string // in standard output
		err  []string // in standard error
	}{
		{args: []string{"version"}, out: []string{"deploy-ssh " + Version}},
		{args: []string{"--version"}, out: []string{"deploy-ssh " + Version}},
		{args: []string{"--help"}, out: []string{"FLAKE#NODES", settings.KeyNodes, "130", "--goal"}},
		{args: []string{"apply", "--help"}, out: []string{"--lock-attempts", "--confirm", "-p, --parallel", "--max-failures N|P%"}},
		{args: nil, code: 2, err: []string{".#nodes"}},
		{args: []string{".#nodes", ".#others"}, code: 2, err: []string{"behind --"}},
		{args: []string{".#nodes", "--goal", "fly"}, code: 2, err: []string{"fly", "dry-activate"}},
		{args: []string{".#nodes", "--reboot", "--goal", "test"}, code: 2, err: []string{"--reboot with --goal test"}},
		{args: []string{".#nodes", "--confirm", "5s", "--goal", "boot"}, code: 2, err: []string{"--confirm with --goal boot"}},
		{args: []string{".#nodes", "--settle", "-1s"}, code: 2, err: []string{"--settle -1s"}},
		{args: []string{".#nodes", "--copy-timeout", "0s"}, code: 2, err: []string{"--copy-timeout 0s"}},
		{args: []string{".#nodes", "--probe-age", "0s"}, code: 2, err: []string{"--probe-age 0s"}},
		{args: []string{".#nodes", "-p", "0"}, code: 2, err: []string{"--parallel 0: at least 1"}},
		{args: []string{".#nodes", "-p", "many"}, code: 2, err: []string{"many"}},
		{args: []string{".#nodes", "--canary", "0"}, code: 2, err: []string{"--canary 0"}},
		{args: []string{".#nodes", "--batch", "-1"}, code: 2, err: []string{"--batch -1"}},
		{args: []string{".#nodes", "--pause", "0s"}, code: 2, err: []string{"--pause 0s"}},
		{args: []string{".#nodes", "--max-failures", "101%"}, code: 2, err: []string{"101%", "at most 100%"}},
		{args: []string{".#nodes", "--max-failures", "-1"}, code: 2, err: []string{"-1", "such as 10%"}},
		{args: []string{".#nodes", "--strategy", "all"}, code: 2, err: []string{"all", "lockstep"}},
		{args: []string{".#nodes", "--strategy", "serial", "-p", "2"}, code: 2, err: []string{"--strategy serial with --parallel 2"}},
		{args: []string{"rollback", ".#nodes", "--strategy", "parallel"}, code: 2, err: []string{"--parallel"}},
		{args: []string{".#nodes", "-p", "4", "--batch", "2"}, code: 2, err: []string{"--batch 2 with --parallel 4"}},
		{args: []string{".#nodes", "-p", "4", "--pause", "1s"}, code: 2, err: []string{"--batch or --canary"}},
		{args: []string{".#nodes", "--goal", "build", "--canary", "1"}, code: 2, err: []string{"--canary with --goal build"}},
		{args: []string{".#nodes", "--via-cache-key", "k:A"}, code: 2, err: []string{"--via-cache-key without --via-cache"}},
		{args: []string{".#nodes", "--via-cache", "https://c", "--via-cache-key", "k:A"}, code: 2, err: []string{`--via-cache-key "k:A"`, "NAME:BASE64"}},
		{args: []string{".#nodes", "--via-cache", "ssh://c"}, code: 2, err: []string{"--via-cache: a binary cache is wanted"}},
		{args: []string{".#nodes", "--via-cache", "file:///srv/cache"}, code: 2, err: []string{"--via-cache-fetch"}},
		{args: []string{".#nodes", "--lock-attempts", "0"}, code: 2, err: []string{"at least 1"}},
		{args: []string{".#nodes", "--option", "cores"}, code: 2, err: []string{"cores"}},
		{args: []string{".#nodes", "--no-such-flag"}, code: 2, err: []string{"no-such-flag"}},
		{args: []string{"rollback", ".#nodes", "--to", "-1"}, code: 2, err: []string{"generations count from 1"}},
		{args: []string{"rollback", ".#nodes", "--goal", "build"}, code: 2, err: []string{"on the host already"}},
		{args: []string{"exec", "--help"}, out: []string{"-- COMMAND", "sh -c", "130", "--nix-arg"}},
		{args: []string{"exec", ".#nodes"}, code: 2, err: []string{"a command is wanted behind --"}},
		{args: []string{"exec", ".#nodes", "--"}, code: 2, err: []string{"a command is wanted behind --"}},
		{args: []string{"exec", ".#nodes", "uptime"}, code: 2, err: []string{"a command is wanted behind --"}},
		{args: []string{"exec", "--", "uptime"}, code: 2, err: []string{"one flake reference"}},
		{args: []string{"exec", "nodes", "--", "uptime"}, code: 2, err: []string{".#nodes"}},
		{args: []string{"exec", ".#nodes", "--", "--uptime"}, code: 2, err: []string{`"--uptime" is no program`}},
		{args: []string{"exec", ".#nodes", "-p", "0", "--", "uptime"}, code: 2, err: []string{"--parallel 0"}},
		{args: []string{"exec", ".#nodes", "--timeout", "-1s", "--", "uptime"}, code: 2, err: []string{"--timeout -1s"}},
		{args: []string{".#nodes", "--combined", "--on", "web"}, code: 2, err: []string{"--combined with a selection"}},
		{args: []string{".#nodes", "--combined", "--retry-failed"}, code: 2, err: []string{"--combined with --retry-failed"}},
		{args: []string{"check", ".#nodes", "web", "--combined"}, code: 2, err: []string{"--combined with a selection"}},
		{args: []string{".#nodes", "--report", "x", "--no-report"}, code: 2, err: []string{"--report with --no-report"}},
		{args: []string{".#nodes", "--retry-failed"}, env: []string{"XDG_STATE_HOME=/nowhere"}, code: 2, err: []string{"no run of this map by apply is on record in /nowhere/deploy-ssh"}},
		{args: []string{".#nodes", "--retry-failed"}, code: 2, err: []string{"--report DIR names a directory"}},
		{args: []string{"plan", "git+https://me:t0ps@git.example/fleet#nodes", "--out", "p"}, code: 2, err: []string{"--out p: the flake reference has a password or token"}},
		{args: []string{"plan", "--help"}, out: []string{"--out FILE", "--dry-activate", "--no-build", "apply --plan fleet.plan", "130"}},
		{args: []string{"plan"}, code: 2, err: []string{".#nodes"}},
		{args: []string{"plan", ".#nodes", "--no-build", "--out", "x"}, code: 2, err: []string{"--out with --no-build"}},
		{args: []string{"plan", ".#nodes", "--out", "/nowhere/x"}, code: 2, err: []string{"--out /nowhere/x", "no such file"}},
		{args: []string{"plan", ".#nodes", "--out", "/dev/null"}, code: 2, err: []string{"no regular file"}},
		{args: []string{"plan", ".#nodes", "--build-timeout", "0s"}, code: 2, err: []string{"--build-timeout 0s"}},
		{args: []string{"apply", "--plan", "/nowhere/x"}, code: 2, err: []string{"reading the plan /nowhere/x", "no such file"}},
		{args: []string{"--plan", "/dev/null"}, code: 2, err: []string{"no regular file"}},
		{args: []string{"apply", ".#nodes", "--plan", "x"}, code: 2, err: []string{`".#nodes" with --plan: the plan names its map`}},
		{args: []string{"--plan", "x", "--on", "web"}, code: 2, err: []string{"--on with --plan"}},
		{args: []string{"--plan", "x", "--store-path", "web=/x"}, code: 2, err: []string{"--store-path with --plan"}},
		{args: []string{"--plan", "x", "--goal", "build"}, code: 2, err: []string{"--goal build with --plan"}},
		{args: []string{"apply", "--plan", "x", "--retry-failed"}, code: 2, err: []string{"--retry-failed with --plan"}},
		{args: []string{"report", "--report", "none"}, code: 2, err: []string{"there is no report in"}},
		{args: []string{"report", "x", "--list"}, code: 2, err: []string{"all runs are listed"}},
		{args: []string{".#nodes"}, env: []string{"DEPLOY_SSH_USR=x"}, code: 2, err: []string{"DEPLOY_SSH_USR", "DEPLOY_SSH_USER"}},
		{args: []string{".#nodes"}, code: 2, err: []string{"nix", "hint: nix and ssh must be on the PATH"}},
	} {
		code, out, errs := call(t, tt.env, tt.args...)
		if code != tt.code {
			t.Errorf("%q %q: exit code %d, want %d\n%s%s", tt.env, tt.args, code, tt.code, out, errs)
		}
		for _, word := range tt.out {
			if !strings.Contains(out, word) {
				t.Errorf("%q: standard output lacks %q:\n%s", tt.args, word, out)
			}
		}
		for _, word := range tt.err {
			if !strings.Contains(errs, word) {
				t.Errorf("%q %q: standard error lacks %q:\n%s", tt.env, tt.args, word, errs)
			}
		}
		if tt.code != 0 && out != "" {
			t.Errorf("%q: standard output of a usage error: %s", tt.args, out)
		}
	}
}

func TestSchemaIsJSON(t *testing.T) {
	code, out, errs := call(t, nil, "schema")
	if code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("exit code %d, %s, not JSON:\n%.200s", code, errs, out)
	}
}

func TestJoinOptions(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{".#nodes --option cores 4 --json", ".#nodes --option=cores=4 --json"},
		{".#nodes --option cores=4 --json", ".#nodes --option cores=4 --json"},
		{".#nodes -- --option cores 4", ".#nodes -- --option cores 4"},
		{".#nodes --option", ".#nodes --option"},
	} {
		if got := strings.Join(joinOptions(strings.Fields(tt.in)), " "); got != tt.want {
			t.Errorf("joinOptions(%s) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

// An interrupt before anything was done is 130, whatever was under way.
func TestInterruptedBeforeWork(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs bytes.Buffer
	code := Run(ctx, Process{Args: []string{".#nodes"}, Env: []string{"PATH=" + t.TempDir()}, Stdout: &bytes.Buffer{}, Stderr: &errs})
	if code != verdict.ExitInterrupted {
		t.Errorf("exit code %d, want 130\n%s", code, errs.String())
	}
}
