package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/nixtest"
	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
)

const completedFlake = `{
  outputs = _: {
    nodes = {
      defaults.ssh.user = "deploy";
      nodes = [
        { name = "db"; host = "10.0.0.2"; tags = [ "eu" "data" ]; toplevel = throw "no system is evaluated"; }
        { name = "web"; tags = [ "eu" ]; toplevel = abort "no system is evaluated"; }
      ];
    };
    network = throw "another attribute";
    broken = throw "no map";
  };
}
`

// Real command lines, on a real flake: what a shell is told when the tab key is pressed.
func TestComplete(t *testing.T) {
	defer func(before time.Duration) { completionLimit = before }(completionLimit)
	completionLimit = 5 * time.Minute
	store := nixtest.New(t)
	dir := filepath.Join(store.Runner.Dir, "fleet")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "flake.nix"), []byte(completedFlake), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		// line ends with the word that is completed; '' is an empty one.
		line string
		want []string
	}{
		{".#no", []string{".#nodes", ":4"}},
		{".#n", []string{".#network", ".#nodes", ":4"}},
		{"apply ''", []string{".#nodes", ":4"}},
		{"apply ./sub", []string{":16"}},
		{"apply .#nodes ''", []string{":4"}},
		{"apply .#nodes -- ''", []string{":0"}},
		{"sta", []string{"status", ":4"}},
		{".#nodes --on ''", []string{"db", "web", "@data", "@eu", ":36"}},
		{".#nodes --on @", []string{"@data", "@eu", ":36"}},
		{".#nodes --on web,@d", []string{"web,@data", ":36"}},
		{".#nodes --exclude @eu&d", []string{"@eu&db", ":36"}},
		{"status --on w", []string{"web", ":36"}},
		{"status --option cores=2 --impure --on w", []string{"web", ":36"}},
		{"explain .#nodes ''", []string{"db", "web", ":36"}},
		{"check .#nodes web ''", []string{"db", ":36"}},
		{"hostkeys .#broken ''", []string{":36"}},
		{".#nodes --store-path d", []string{"db=", ":38"}},
		{".#nodes --store-path db=/nix", []string{":0"}},
		{".#nodes --goal d", []string{"dry-activate", ":36"}},
		{".#nodes --compress ''", []string{"zstd", "none", ":36"}},
		{".#nodes --settle ''", []string{":4"}},
		{".#nodes --ssh-config ''", []string{":0"}},
		{"completion ''", []string{"bash", "zsh", "fish", ":4"}},
		{"version ''", []string{":4"}},
	} {
		args := []string{"__complete"}
		for _, word := range strings.Fields(tt.line) {
			args = append(args, strings.Trim(word, "'"))
		}
		var stdout, stderr bytes.Buffer
		if code := Run(t.Context(), Process{Args: args, Env: store.Runner.Env, Dir: dir, Stdout: &stdout, Stderr: &stderr}); code != 0 {
			t.Errorf("%s: exit code %d\n%s", tt.line, code, &stderr)
		}
		var got []string
		for line := range strings.Lines(stdout.String()) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.line, diff)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, errs := call(t, nil, "completion", shell); code != 0 || !strings.Contains(out, "__complete") {
			t.Errorf("%s: exit code %d, %s\n%.200s", shell, code, errs, out)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}} {
		if code, out, errs := call(t, nil, args...); code != 2 || out != "" || !strings.Contains(errs, "bash, zsh, fish") {
			t.Errorf("%s: exit code %d, %s%s", args, code, out, errs)
		}
	}
}

// The script for bash, with the answers of the program and what bash-completion does
// played: lists are completed at their last item.
func TestBashCompletesLists(t *testing.T) {
	tooltest.Need(t, "bash")
	_, script, _ := call(t, nil, "completion", "bash")
	for _, tt := range []struct{ word, answers, want string }{
		{"web,@e", `web,@eu\tweb\n:36\n`, "web,@eu"},
		{"web,", `web,db\tx\nweb,@eu\ty\n:36\n`, "web,db   (x)|web,@eu  (y)"},
		{"@", `@data\tdb\n:36\n`, "@data"},
		{"we", `web\tweb\n:36\n`, "web"},
	} {
		bash := exec.CommandContext(t.Context(), "bash", "-c", script+`
compopt() { :; }
_get_comp_words_by_ref() { cur=$WORD; words=(deploy-ssh .#nodes --on "$WORD"); cword=3; }
deploy-ssh() { printf "$ANSWERS"; }
COMP_TYPE=9 COLUMNS=80
__start_deploy-ssh
(IFS='|'; echo "${COMPREPLY[*]}")
case $COMP_WORDBREAKS in *@*) echo "@ parts words";; esac
`)
		bash.Env = append(os.Environ(), "WORD="+tt.word, "ANSWERS="+tt.answers)
		out, err := bash.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.word, got, err, tt.want)
		}
	}
}
