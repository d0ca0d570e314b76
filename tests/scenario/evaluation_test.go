package scenario_test

import (
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

const keptFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      read = file: builtins.replaceStrings [ "\n" ] [ "" ] (builtins.readFile file);
      name = read ./name + (if builtins.pathExists ./sub/name then read ./sub/name else "");
    in
    {
      nodes = [ { name = "web1"; host = "web1"; toplevel = toplevels.mkToplevel { inherit name; }; } ];
    };
}
`

// keptEvaluations are those of a Git tree, which are taken from the cache as long as
// Nix would evaluate the same, and never when it would not.
func keptEvaluations(t *testing.T, w *identities) {
	d := w.rig.Deployer
	const nix = "/root/bin/nix"
	w.write(t, d, nix, "#!/bin/sh\n[ \"$1\" != eval ] || echo >>/root/evaluations\nexec /usr/bin/nix \"$@\"\n", 0o755)
	defer w.sh(t, d, "rm "+nix)
	w.sh(t, d, "mkdir /root/kept && cp -r "+rigworld.Flake+"/toplevels /root/kept")
	w.write(t, d, "/root/kept/flake.nix", keptFlake, 0o644)
	w.write(t, d, "/root/kept/name", "kept-1", 0o644)
	git := "git -c user.name=a -c user.email=a@b "
	w.sh(t, d, "git config --global protocol.file.allow always")
	defer w.sh(t, d, "rm /root/.gitconfig")
	w.sh(t, d, "mkdir -p /root/sub && cd /root/sub && git init -q && echo -a >name && git add . && "+git+"commit -qm a")
	w.sh(t, d, "cd /root/kept && git init -q && git add . && "+git+"submodule --quiet add /root/sub sub && "+git+"commit -qm 1")
	// Git writes an index anew that is as young as its files, to be surer of it. Nix 2.8
	// makes it do so for submodules, which passes for an edit: then nothing is kept.
	settle := func() {
		t.Helper()
		w.sh(t, d, "cd /root/kept && sleep 1.1 && git status >/dev/null && git submodule foreach -q --recursive 'git status >/dev/null'")
	}
	settle()
	deploy := func(what, cache string, flags ...string) outcome {
		t.Helper()
		before := w.sh(t, d, "cat /root/evaluations 2>/dev/null | wc -l")
		o := w.program(t, "", "'/root/kept?submodules=1#nodes' --json --settle 0s "+strings.Join(flags, " ")).read(t)
		after := w.sh(t, d, "cat /root/evaluations 2>/dev/null | wc -l")
		if got := o.cache(); got != cache || (before == after) != (cache == "hit") {
			t.Errorf("%s: the cache is a %q, want %s; evaluations before %s, after %s\n%s", what, got, cache, before, after, o.Stderr)
		}
		// Nix's own word, past any cache.
		want := strings.TrimSpace(w.sh(t, d, "nix eval --raw '/root/kept?submodules=1#nodes' --apply 'nodes: (builtins.head nodes).toplevel.outPath'"))
		if got := o.results["web1"].Toplevel; got != want {
			t.Errorf("%s: the system is %s, want %s", what, got, want)
		}
		return o
	}
	deploy("clean", "miss", "--goal build")
	deploy("clean, again", "hit").want(t, "web1", verdict.Switched)
	w.write(t, d, "/root/kept/name", "kept-2", 0o644)
	deploy("dirty", "miss").want(t, "web1", verdict.Switched)
	if running := w.sh(t, w.web1, "readlink /run/current-system"); !strings.Contains(running, "kept-2") {
		t.Errorf("runs %s", running)
	}
	deploy("dirty, again", "hit").want(t, "web1", verdict.Unchanged)
	// Where Git calls a tree clean, Nix names its content by the revision, and some
	// versions evaluate what is in the tree.
	w.sh(t, d, "cd /root/kept && "+git+"commit -qam 2")
	settle()
	deploy("committed", "miss", "--goal build")
	w.sh(t, d, "cd /root/kept && git update-index --skip-worktree name && echo kept-3 >name")
	deploy("an edit that Git overlooks", "miss", "--goal build")
	w.sh(t, d, "cd /root/kept && git update-index --no-skip-worktree name && git checkout -q name")
	deploy("as committed", "hit", "--goal build")
	w.sh(t, d, "cd /root/kept/sub && echo -b >name && "+git+"commit -qam b")
	settle()
	deploy("another commit of a submodule", "miss", "--goal build")
	w.sh(t, d, "cd /root/kept/sub && git checkout -q HEAD~1")
	deploy("a submodule as committed", "hit", "--goal build")
}

// cache is what the record of the evaluation says of the cache.
func (o outcome) cache() string {
	for _, r := range o.records {
		if r.Phase != nil && r.Phase.Name == report.Evaluate {
			return r.Phase.Cache
		}
	}
	return "not in the records"
}
