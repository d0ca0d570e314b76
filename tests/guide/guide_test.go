package guide

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/cli"
)

const project = "../.."

func documents(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(project, "docs/*.md"))
	if err != nil || len(found) < 3 {
		t.Fatalf("%d guides: %v", len(found), err)
	}
	texts := map[string]string{}
	for _, path := range append(found, filepath.Join(project, "README.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(project, path)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

// Every command in a document says how it is tried, and calls of deploy-ssh have
// flags and verbs that exist, wherever they are run.
func TestCommandsOfDocuments(t *testing.T) {
	tests := goTests(t)
	for name, text := range documents(t) {
		d, err := Parse(name, text)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, b := range d.Blocks {
			at := fmt.Sprintf("%s:%d", name, b.Line)
			if b.Mode == Own && !tests[b.Why] {
				t.Errorf("%s is run by %s, but there is no such test", at, b.Why)
			}
			if b.Mode == Rig && d.Example == "" {
				t.Errorf("%s is run in the rig, but the document names no example: <!-- example: examples/… -->", at)
			}
			for _, command := range b.Commands {
				calls, err := Calls(command)
				if err != nil {
					t.Errorf("%s: %v", at, err)
				}
				for _, args := range calls {
					if err := cli.Parse(args); err != nil {
						t.Errorf("%s: deploy-ssh %s: %v", at, strings.Join(args, " "), err)
					}
				}
			}
		}
	}
}

// goTests are the names of all tests of the project.
func goTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, pattern := range []string{"tests/*/*_test.go", "internal/*/*_test.go", "nix/*_test.go"} {
		paths, err := filepath.Glob(filepath.Join(project, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				names[m[1]] = true
			}
		}
	}
	return names
}

// Commands that need no host are run in the project's folder.
func TestCommandsInCheckout(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", project, "-o", bin, "./cmd/deploy-ssh").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ran := 0
	for name, text := range documents(t) {
		d, err := Parse(name, text)
		if err != nil {
			continue // told by the other test
		}
		for _, b := range d.Blocks {
			if b.Mode != Checkout {
				continue
			}
			for _, command := range b.Commands {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
				shell.Dir = project
				shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
				if out, err := shell.CombinedOutput(); err != nil {
					t.Errorf("%s:%d: %s: %v\n%s", name, b.Line, command, err, out)
				}
				cancel()
				ran++
			}
		}
	}
	if ran == 0 {
		t.Error("no document has a command for this test")
	}
}

// Links between documents lead to files that are there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	texts := documents(t)
	for _, pattern := range []string{"docs/reference/*.md", "ARCHITECTURE.md", "CHANGELOG.md", "tofu/*.md", "examples/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(project, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(project, path)
			texts[name] = string(text)
		}
	}
	for name, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := filepath.Join(project, filepath.Dir(name), target)
			if target == "" {
				path = filepath.Join(project, name)
			}
			linked, err := os.Stat(path)
			if err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[1])
				continue
			}
			if anchor == "" || linked.IsDir() {
				continue
			}
			there, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !headings(string(there))[anchor] && !strings.Contains(string(there), fmt.Sprintf("id=%q", anchor)) {
				t.Errorf("%s: the link %s leads to no heading", name, m[1])
			}
		}
	}
}

// headings are the anchors that GitHub gives to a document's headings.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors[strings.ReplaceAll(title, " ", "-")] = true
		}
	}
	return anchors
}

func TestParse(t *testing.T) {
	d, err := Parse("a.md", "# A\n<!-- example: examples/a -->\n<!-- commands: run: rig -->\n\n```console\n$ one \\\n  more\nprinted\n$ two\n```\n\n<!-- not run: needs a moon -->\n```sh\nthree\nfour\n```\n\n```nix\n{ }\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Document{Name: "a.md", Example: "examples/a", Blocks: []Block{
		{Line: 5, Mode: Rig, Commands: []string{"one \\\n  more", "two"}},
		{Line: 13, Mode: Unrun, Why: "needs a moon", Commands: []string{"three\nfour"}},
	}}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for text, want := range map[string]string{
		"```console\n$ x\n```\n":                       "a.md:1: the line above",
		"<!-- not run -->\n```sh\nx\n```\n":            "a reason or a test is wanted",
		"<!-- run: rig: why -->\n```sh\nx\n```\n":      "with them alone",
		"<!-- run: rig -->\ntext\n":                    "no block follows",
		"<!-- run: rig -->\n```sh\nx\n":                "has no end",
		"    deploy-ssh .#nodes\n":                     "outside of a fenced block",
		"<!-- commands: run by: TestX -->\n```sh\nx\n": "has no end",
	} {
		if _, err := Parse("a.md", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestCalls(t *testing.T) {
	for command, want := range map[string][][]string{
		"deploy-ssh .#nodes --on web,@eu   # only these":  {{".#nodes", "--on", "web,@eu"}},
		"A=1 B='x y' deploy-ssh apply \\\n --json | jq .": {{"apply", "--json"}},
		`cd x && deploy-ssh "a b" >out; deploy-ssh c`:     {{"a b"}, {"c"}},
		"echo deploy-ssh": nil,
		"nix run github:deploy-ssh/deploy-ssh -- .#nodes":      {{".#nodes"}},
		"nix run --impure github:deploy-ssh/deploy-ssh -- .#n": {{".#n"}},
		"nix run nixpkgs#hello -- x":                           nil,
		`deploy-ssh exec .#n -- echo $(a | b) 'c;d'`:           {{"exec", ".#n", "--", "echo", "$(a | b)", "c;d"}},
	} {
		got, err := Calls(command)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v -want +got\n%s", command, err, diff)
		}
	}
	if _, err := Calls("deploy-ssh 'x"); err == nil {
		t.Error("an open quote is no command")
	}
}
