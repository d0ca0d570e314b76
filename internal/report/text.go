package report

// The rules of what a person sees:
//
//   - Results (the table and what it needs explained) go to standard output, alone.
//   - Everything else goes to standard error, with the program's or the node's name
//     in front: "web1: ..." is the program speaking, "web1 | ..." and "nix | ..."
//     are the host and Nix.
//   - Lines are lower case and have no full stop, but for texts of the verdict table,
//     of Nix, of ssh and of hosts, which speak for themselves.
//   - What a host or a child printed is shown with its control characters made
//     visible: no host can move a cursor or recolour a terminal.
//   - There is no cursor movement and no colour.

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"unicode"
)

// Text writes for people.
type Text struct {
	// Out receives results, Err everything else.
	Out, Err io.Writer
	// Verbose shows the records of every phase.
	Verbose bool
	// NoProgress drops progress records.
	NoProgress bool

	// Width is that of the terminal that Out is; 0 means that it is none.
	Width int

	// goal is that of the run, see [Run.Goal].
	goal     string
	results  []Result
	statuses []Status
	// going are the nodes whose turn has come and whose result has not.
	going    map[string]bool
	commands []Exec
	planned  []Planned
}

// Handle implements [Handler].
func (t *Text) Handle(r Record) error {
	if r.Run != nil {
		t.goal = r.Run.Goal
	}
	switch {
	case r.Run != nil && r.Run.Source == settings.KeyNodes:
		return t.say("", "nothing is evaluated: the nodes are those of %s", r.Run.Source)
	case r.Run != nil:
		return t.say("", "evaluating %s", r.Run.Source)
	case r.Plan != nil:
		for _, note := range r.Plan.Notes {
			if err := t.say("", "%s", note); err != nil {
				return err
			}
		}
		return nil
	case r.Announce != nil:
		a := r.Announce
		if t.going == nil {
			t.going = map[string]bool{}
		}
		t.going[a.Node] = true
		return t.say("", "[%d/%d] %s: %s", a.Index, a.Total, a.Node, opening(t.goal, *a))
	case r.Progress != nil:
		if t.NoProgress {
			return nil
		}
		if r.Progress.FromHost {
			return t.line("%s | %s", r.Progress.Node, Printable(r.Progress.Text))
		}
		if r.Progress.Node == "" && r.Progress.Phase != Pause {
			return t.line("nix | %s", Printable(r.Progress.Text))
		}
		return t.say(r.Progress.Node, "%s", r.Progress.Text)
	case r.Phase != nil:
		return t.phase(*r.Phase)
	case r.Result != nil:
		return t.result(*r.Result)
	case r.Status != nil:
		t.statuses = append(t.statuses, *r.Status)
		return nil
	case r.Output != nil:
		return t.output(*r.Output)
	case r.Exec != nil:
		return t.exec(*r.Exec)
	case r.Planned != nil:
		t.planned = append(t.planned, *r.Planned)
		return nil
	case r.Summary != nil:
		return t.summary(*r.Summary)
	}
	return nil
}

func (t *Text) phase(p Phase) error {
	switch {
	case !p.OK:
		// The result that follows gives the reason, so here it would stand twice. It
		// follows late where it waits for the nodes before.
		switch reason, _, _ := strings.Cut(p.Detail, "\n"); {
		case p.Node != "" && t.several():
			return t.say(p.Node, "%s failed: %s", p.Name, reason)
		case p.Node != "":
			return nil
		}
		return t.say("", "%s: %s", p.Name, p.Detail)
	case p.Detail != "":
		if err := t.say(p.Node, "%s", p.Detail); err != nil {
			return err
		}
	case t.Verbose:
		cache := ""
		if p.Cache != "" {
			cache = " (cache " + p.Cache + ")"
		}
		if err := t.say(p.Node, "%s done in %s%s", p.Name, duration(p.Seconds), cache); err != nil {
			return err
		}
	}
	for _, note := range p.Notes {
		if err := t.say(p.Node, "note: %s", note); err != nil {
			return err
		}
	}
	return nil
}

func (t *Text) result(r Result) error {
	t.results = append(t.results, r)
	defer delete(t.going, r.Node)
	text := string(r.Verdict)
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return t.say(r.Node, "%s", text)
}

// summary prints the table and, below, what needs more words.
func (t *Text) summary(s Summary) error {
	if len(t.statuses) > 0 {
		_, err := io.WriteString(t.Out, statusTable(t.statuses, s, t.Verbose))
		return err
	}
	if len(t.commands) > 0 {
		return t.execEnding(s)
	}
	if len(t.planned) > 0 {
		_, err := io.WriteString(t.Out, plannedText(t.planned, s, t.Width))
		return err
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tVERDICT\tGENERATION\tTIME")
	good := 0
	for _, r := range t.results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Node, r.Verdict, generations(r), duration(r.Seconds))
		if r.Verdict.Good() {
			good++
		}
	}
	_ = table.Flush()
	b.WriteString(failures(t.results))
	fmt.Fprintf(&b, "\n%s\n", ending(len(t.results), good, Done(t.goal), s))
	_, err := io.WriteString(t.Out, b.String())
	return err
}

// ending tells how many of the nodes are what, such as "as wanted".
func ending(total, good int, what string, s Summary) string {
	nodes := "nodes"
	if total == 1 {
		nodes = "node"
	}
	switch {
	case s.Interrupted:
		return fmt.Sprintf("interrupted: %d of %d %s %s, in %s", good, total, nodes, what, duration(s.Seconds))
	case good == total:
		return fmt.Sprintf("%d %s %s, in %s", total, nodes, what, duration(s.Seconds))
	}
	return fmt.Sprintf("%d of %d %s %s, in %s; not: %s", good, total, nodes, what, duration(s.Seconds), strings.Join(s.Failed, ", "))
}

func generations(r Result) string {
	show := func(s *State) string {
		if s == nil || s.Generation == 0 {
			return "?"
		}
		return fmt.Sprint(s.Generation)
	}
	switch {
	case r.From == nil && r.To == nil:
		return "-"
	case r.To == nil || r.From != nil && r.From.Generation == r.To.Generation:
		return show(r.From)
	}
	return show(r.From) + " → " + show(r.To)
}

func (t *Text) say(node, format string, args ...any) error {
	if node == "" {
		node = "deploy-ssh"
	}
	text := node + ": " + Printable(fmt.Sprintf(format, args...))
	// A text of several lines keeps them together under its first. Where the lines of
	// nodes mix, each one tells whose it is.
	under := "\n  "
	if t.several() {
		under = "\n" + node + ":   "
	}
	return t.line("%s", strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", under))
}

// several reports whether more than one node is under way.
func (t *Text) several() bool { return len(t.going) > 1 }

func (t *Text) line(format string, args ...any) error {
	_, err := fmt.Fprintf(t.Err, format+"\n", args...)
	return err
}

// Printable makes control characters and invalid bytes of foreign text visible,
// all but tabs and the ends of lines.
func Printable(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			// As a Go escape, without the quotes around it.
			q := fmt.Sprintf("%+q", r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// hidden are the characters that act on a terminal or can't be seen:
// controls (Cc) and formats such as those that turn the direction of text (Cf).
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
}

func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", seconds)
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", seconds)
	}
	return d.Round(time.Second).String()
}

// systemName is a store path without its folder and hash.
func systemName(toplevel string) string {
	name := toplevel[strings.LastIndex(toplevel, "/")+1:]
	if len(name) > 33 && name[32] == '-' {
		return name[33:]
	}
	return name
}

// systemHash is the hash of a store path; the path itself where it is none.
func systemHash(toplevel string) string {
	base := toplevel[strings.LastIndex(toplevel, "/")+1:]
	if hash, name, ok := strings.Cut(base, "-"); ok && len(hash) == 32 && name != "" {
		return hash
	}
	return toplevel
}

func login(user, host string) string {
	if user == "" {
		return host
	}
	return user + "@" + host
}
