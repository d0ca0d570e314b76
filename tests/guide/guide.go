// Package guide reads the commands that documents show, so that tests can run them.
//
// Commands stand in fenced blocks: after `$ ` in a block of `console`, where the
// other lines are what they print; and as a whole script in a block of `sh`. A
// comment in the line above a block says how it is tried:
//
//	<!-- run: rig -->              on the deployer of a rig, in the folder of an example
//	<!-- run: checkout -->         in the project's folder, by go test
//	<!-- run by: TestFirstDeploy --> by a test of its own, which reads the document
//	<!-- not run: needs GitHub -->   not at all, and why; calls of deploy-ssh are parsed all the same
//
// A comment `<!-- commands: … -->` at the head of a document says it for all blocks
// that don't say it themselves, and `<!-- example: examples/nixos -->` which flake
// those of the rig belong to.
package guide

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Mode is how a block is tried.
type Mode string

const (
	Rig      Mode = "run: rig"
	Checkout Mode = "run: checkout"
	// Own blocks are run by the test that Why names.
	Own Mode = "run by"
	// Unrun blocks are not run, for the reason in Why.
	Unrun Mode = "not run"
)

// Document is a document with its blocks of commands, in order.
type Document struct {
	Name string
	// Example is the folder of the flake that it is about; may be empty.
	Example string
	Blocks  []Block
}

// Block is a fenced block of commands.
type Block struct {
	// Line is where it begins, from 1.
	Line int
	Mode Mode
	// Why is a reason or the name of a test, as the mode has it.
	Why string
	// Commands are what a shell is given, one after the other.
	Commands []string
}

// whole are the documents that a test of their own reads and runs, from the first
// command to the last.
var whole = map[string]string{"docs/first-deploy.md": "TestFirstDeploy"}

var directive = regexp.MustCompile(`^<!-- (commands: )?(run: rig|run: checkout|run by|not run)(?:: (.+?))? -->$`)

// Parse reads a document, named by its path in the project's folder. An error names what can't be tried as it stands.
func Parse(name, text string) (Document, error) {
	d := Document{Name: name}
	var common, above *Block
	if test, ok := whole[name]; ok {
		common = &Block{Mode: Own, Why: test}
	}
	var open *Block
	fence, script, comment := "", false, false
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if trimmed == fence {
				if open != nil {
					d.Blocks = append(d.Blocks, *open)
				}
				fence, open = "", nil
				continue
			}
			if open == nil {
				continue
			}
			open.add(line, script)
		case strings.HasPrefix(trimmed, "```"):
			fence = "```"
			language, _, _ := strings.Cut(strings.TrimPrefix(trimmed, "```"), " ")
			script = language == "sh" || language == "bash"
			if script || language == "console" {
				open = &Block{Line: i + 1}
				switch {
				case above != nil:
					open.Mode, open.Why = above.Mode, above.Why
				case common != nil:
					open.Mode, open.Why = common.Mode, common.Why
				default:
					return d, fmt.Errorf("%s: the line above the block must say how its commands are tried, as <!-- run: rig --> or <!-- not run: REASON -->; see tests/guide", at)
				}
			}
			above = nil
		case strings.HasPrefix(trimmed, "<!-- example: "):
			d.Example = strings.TrimSuffix(strings.TrimPrefix(trimmed, "<!-- example: "), " -->")
		case directive.MatchString(trimmed):
			m := directive.FindStringSubmatch(trimmed)
			found := &Block{Mode: Mode(m[2]), Why: m[3]}
			if (found.Mode == Own || found.Mode == Unrun) == (found.Why == "") {
				return d, fmt.Errorf("%s: %s: a reason or a test is wanted with `not run` and `run by`, and with them alone", at, trimmed)
			}
			if m[1] != "" {
				common = found
			} else {
				above = found
			}
		case comment || strings.HasPrefix(trimmed, "<!--"):
			comment = !strings.HasSuffix(trimmed, "-->")
		case strings.HasPrefix(line, "    ") && command.MatchString(trimmed):
			return d, fmt.Errorf("%s: a command stands outside of a fenced block: %s", at, trimmed)
		case trimmed != "" && above != nil:
			return d, fmt.Errorf("%s: the comment before says how a block is tried, but no block follows", at)
		}
	}
	if fence != "" {
		return d, fmt.Errorf("%s: a fenced block has no end", name)
	}
	return d, nil
}

var command = regexp.MustCompile(`^(\$ |deploy-ssh |make |nix |go |ssh )`)

// add takes a line of a block. A command goes on in the next line after a backslash.
func (b *Block) add(line string, script bool) {
	last := len(b.Commands) - 1
	if script {
		if last < 0 {
			b.Commands = []string{line}
		} else {
			b.Commands[last] += "\n" + line
		}
		return
	}
	if last >= 0 && strings.HasSuffix(b.Commands[last], "\\") {
		b.Commands[last] += "\n" + line
		return
	}
	if text, ok := strings.CutPrefix(line, "$ "); ok {
		b.Commands = append(b.Commands, text)
	}
}

// Calls returns the arguments of every call of deploy-ssh in a shell command, also
// as `nix run github:deploy-ssh/deploy-ssh --`.
func Calls(command string) ([][]string, error) {
	simple, err := split(command)
	if err != nil {
		return nil, err
	}
	var calls [][]string
	for _, words := range simple {
		for len(words) > 0 && (assignment.MatchString(words[0]) || words[0] == "sudo" || words[0] == "export") {
			words = words[1:]
		}
		switch {
		case len(words) > 0 && (words[0] == "deploy-ssh" || strings.HasSuffix(words[0], "/deploy-ssh")):
			calls = append(calls, words[1:])
		case len(words) > 1 && words[0] == "nix" && words[1] == "run":
			own := slices.Index(words, "--")
			if own > 2 && strings.HasPrefix(words[own-1], "github:deploy-ssh/") {
				calls = append(calls, words[own+1:])
			}
		}
	}
	return calls, nil
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// split parts a shell command at its operators into simple commands of words. It
// knows quotes, comments, backslashes and the $( ) of a substitution, which is a word's
// part, but no here-documents.
func split(command string) ([][]string, error) {
	var all [][]string
	var words []string
	var word strings.Builder
	inWord, quote, depth := false, rune(0), 0
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	runes := []rune(command)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case quote == '\'' && r != '\'':
			word.WriteRune(r)
		case r == '\\' && i+1 < len(runes):
			i++
			if runes[i] != '\n' {
				word.WriteRune(runes[i])
				inWord = true
			}
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case depth > 0 || r == '$' && i+1 < len(runes) && runes[i+1] == '(':
			if r == '(' {
				depth++
			} else if r == ')' {
				depth--
			} else if r == '$' && depth == 0 {
				word.WriteRune(r)
				i++
				r = '('
				depth = 1
			}
			word.WriteRune(r)
			inWord = true
		case r == '#' && !inWord:
			for i < len(runes) && runes[i] != '\n' {
				i++
			}
			endCommand()
		case strings.ContainsRune("\n;|&()<>", r):
			endCommand()
		case r == ' ' || r == '\t':
			endWord()
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || depth > 0 {
		return nil, fmt.Errorf("%q: a quote or a $( has no end", command)
	}
	endCommand()
	return all, nil
}
