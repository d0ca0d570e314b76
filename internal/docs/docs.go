// Package docs makes the documentation that has a source in the program: man
// pages and the reference from the commands and the tables, the tables of the
// migration guides from what is known of other tools.
//
// What it makes is committed, so that it can be read where the project is. A test
// compares the two.
package docs

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/internal/cli"
)

// Remake is the command that writes what is generated, for error messages.
const Remake = "make docs"

// Name is the program's name in all that is generated.
const Name = "deploy-ssh"

// Owned are patterns of the files that are generated whole.
var Owned = []string{"docs/man/*.1", "docs/reference/*.md"}

// Generate returns all generated files by their path in the project's folder.
// Generated parts of files that people write are filled in from the files in project.
func Generate(project fs.FS) (map[string]string, error) {
	root := cli.Root()
	files := map[string]string{
		"docs/man/" + Name + ".1":       overview(root),
		"docs/reference/commands.md":    commands(root),
		"docs/reference/environment.md": environment(),
		"docs/reference/exit-codes.md":  exitCodes(),
		"docs/reference/verdicts.md":    verdicts(),
		"docs/reference/node-map.md":    nodeMap(),
		"docs/reference/other-tools.md": otherTools(),
		"docs/reference/ssh-refused.md": refusedOptions(),
	}
	stream, err := records(project)
	if err != nil {
		return nil, err
	}
	files["docs/reference/records.md"] = stream
	for _, cmd := range verbs(root) {
		files["docs/man/"+page(cmd)+".1"] = manPage(cmd)
	}
	guides, err := fs.Glob(project, "docs/*.md")
	if err != nil {
		return nil, err
	}
	for _, path := range guides {
		text, err := fs.ReadFile(project, path)
		if err != nil {
			return nil, err
		}
		filled, err := fill(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if filled != string(text) || strings.Contains(filled, begin) {
			files[path] = filled
		}
	}
	return files, nil
}

// Completions returns the completion scripts by the path that shells look them up
// at, under share.
func Completions(ctx context.Context) (map[string]string, error) {
	files := map[string]string{}
	for shell, path := range map[string]string{
		"bash": "bash-completion/completions/" + Name,
		"zsh":  "zsh/site-functions/_" + Name,
		"fish": "fish/vendor_completions.d/" + Name + ".fish",
	} {
		var script, errs bytes.Buffer
		if code := cli.Run(ctx, cli.Process{Args: []string{"completion", shell}, Stdout: &script, Stderr: &errs}); code != 0 {
			return nil, fmt.Errorf("the completion for %s: %s", shell, &errs)
		}
		files[path] = script.String()
	}
	return files, nil
}

// verbs are the commands that people use, in alphabetical order.
func verbs(root *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(root.Commands()), func(cmd *cobra.Command) bool {
		return cmd.Hidden || cmd.Name() == "help"
	})
}

// page is the name of a command's man page.
func page(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// The marks around a generated part of a file that people write.
const (
	begin = "<!-- generated: "
	end   = "<!-- end of what is generated -->\n"
)

// fill puts the generated parts into a text. A part is made by name; see [parts].
func fill(text string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, begin)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, rest, found := strings.Cut(rest, " -->\n")
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			return "", fmt.Errorf("the generated part %.40q has no end: %s", name, strings.TrimSpace(end))
		}
		part, known := parts[name]
		if !known {
			return "", fmt.Errorf("no part %q is generated; there are %q", name, slices.Sorted(maps.Keys(parts)))
		}
		b.WriteString(begin + name + " -->\n" + part() + end)
		text = after
	}
}
