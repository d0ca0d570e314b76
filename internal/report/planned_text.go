package report

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/deploy-ssh/deploy-ssh/internal/bytesize"
	"github.com/deploy-ssh/deploy-ssh/internal/packages"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// defaultWidth is how wide text is made where nothing is known of a terminal.
const defaultWidth = 80

// mostNamed is how many packages of each kind are named to people.
const mostNamed = 40

// plannedText shows a plan: what would change of each node, then a table of all. No
// line is longer than width, but for single words that are.
func plannedText(all []Planned, s Summary, width int) string {
	if width == 0 {
		width = defaultWidth
	}
	p := &page{width: width}
	change, good := 0, 0
	for _, n := range all {
		switch {
		case n.Verdict == "":
			change++
			p.changing(n)
		case n.Verdict == verdict.Unchanged:
			good++
			p.remarks(n)
		default:
			p.refused(n)
		}
	}
	table := tabwriter.NewWriter(&p.b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tPLAN\tGENERATION\tPACKAGES\tSIZE\tSEND")
	for _, n := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Node, planWord(n), plannedGenerations(n), packageCounts(n.Packages), sizeChange(n.Size), toSend(n.Copy))
	}
	_ = table.Flush()
	nodes := "nodes"
	if len(all) == 1 {
		nodes = "node"
	}
	end := fmt.Sprintf("%d of %d %s would change, %d as wanted, asked in %s", change, len(all), nodes, good, duration(s.Seconds))
	if len(s.Failed) > 0 {
		end += "; not: " + strings.Join(s.Failed, ", ")
	}
	if s.Interrupted {
		end = "interrupted: " + end
	}
	p.b.WriteString("\n" + wrap(end, width, "") + "\n")
	return p.b.String()
}

// page is text that is laid out for a width.
type page struct {
	b     strings.Builder
	width int
}

// labelWidth is the column in which what a line is about stands.
const labelWidth = 12

// indent stands in front of the later lines of a text under a label.
var indent = strings.Repeat(" ", 2+labelWidth)

// line writes a text under a label, its later lines below the first.
func (p *page) line(label, format string, args ...any) {
	p.labelled(label, wrap(Printable(fmt.Sprintf(format, args...)), p.width-len(indent), indent))
}

// items writes a list under a label; no item is broken that fits a line.
func (p *page) items(label string, items []string) {
	for i := range items {
		items[i] = Printable(items[i])
		if i < len(items)-1 {
			items[i] += ","
		}
	}
	p.labelled(label, fill(items, p.width-len(indent), indent))
}

func (p *page) labelled(label, text string) {
	fmt.Fprintf(&p.b, "  %-*s%s\n", labelWidth, label, text)
}

func (p *page) title(n Planned, what string) {
	p.b.WriteString(wrap(Printable(fmt.Sprintf("%s (%s): %s", n.Node, login(n.User, n.Host), what)), p.width-2, "  ") + "\n")
}

// changing shows a node that an apply would change.
func (p *page) changing(n Planned) {
	p.title(n, actionWords(n.Actions))
	p.line("system", "%s", systems(n))
	if generations := plannedGenerations(n); generations != "-" {
		p.line("generation", "%s", generations)
	}
	if !n.Built {
		p.line("packages", "not known: the system is not built")
	}
	if c := n.Packages; c != nil {
		p.line("packages", "%d changed, %d added, %d removed, %d rebuilt", len(c.Changed), len(c.Added), len(c.Removed), c.Rebuilt)
		p.packages("changed", c.Changed)
		p.packages("added", c.Added)
		p.packages("removed", c.Removed)
	}
	if s := n.Size; s != nil {
		p.line("size", "%s", sizeWords(*s))
	}
	if c := n.Copy; c != nil {
		p.line("copy", "%s", copyWords(*c))
	}
	if s := n.Space; s != nil {
		p.line("space", "%s", spaceWords(*s))
	}
	p.units(n)
	if len(n.NeedsReboot) > 0 {
		p.line("reboot", "advised: the new %s will run only then", strings.Join(n.NeedsReboot, ", "))
	}
	p.state(n)
	p.b.WriteByte('\n')
}

// remarks shows of a node that is as wanted only what needs a person.
func (p *page) remarks(n Planned) {
	if len(n.NeedsReboot) == 0 && len(n.Warnings) == 0 && (n.Now == nil || len(n.Now.FailedUnits) == 0) {
		return
	}
	p.title(n, "as wanted")
	if len(n.NeedsReboot) > 0 {
		p.line("reboot", "advised: the new %s will run only then", strings.Join(n.NeedsReboot, ", "))
	}
	p.state(n)
	p.b.WriteByte('\n')
}

// refused shows a node on which an apply would fail.
func (p *page) refused(n Planned) {
	p.title(n, string(n.Verdict))
	p.line("meaning", "%s", n.Meaning)
	if n.Reason != "" {
		p.line("reason", "%s", n.Reason)
	}
	if n.Now != nil {
		p.line("system", "%s", systems(n))
	}
	p.state(n)
	if n.Next != "" {
		p.line("next", "%s", n.Next)
	}
	p.b.WriteByte('\n')
}

// state shows what is not well on the host now.
func (p *page) state(n Planned) {
	if n.Now != nil {
		if len(n.Now.FailedUnits) > 0 {
			p.line("failed", "%s (now)", strings.Join(n.Now.FailedUnits, ", "))
		}
		if n.Now.LockHolder != "" {
			p.line("lock", "held by %s", n.Now.LockHolder)
		}
	}
	for _, w := range n.Warnings {
		p.line("warning", "%s", w)
	}
}

func (p *page) packages(label string, list []packages.Change) {
	if len(list) == 0 {
		return
	}
	var words []string
	for i, c := range list {
		if i == mostNamed {
			words = append(words, fmt.Sprintf("and %d more (--json has all)", len(list)-mostNamed))
			break
		}
		words = append(words, packageWords(c))
	}
	p.items(label, words)
}

func (p *page) units(n Planned) {
	if n.NoUnits != "" {
		p.line("units", "not known: %s", n.NoUnits)
	}
	u := n.Units
	if u == nil {
		return
	}
	none := true
	for _, kind := range []struct {
		word  string
		names []string
	}{{"stop", u.Stop}, {"restart", u.Restart}, {"reload", u.Reload}, {"start", u.Start}, {"keep, though changed,", u.Kept}} {
		if len(kind.names) > 0 {
			p.items("units", append([]string{"would " + kind.word + " " + kind.names[0]}, kind.names[1:]...))
			none = false
		}
	}
	switch {
	case u.Systemd:
		p.line("units", "would start systemd anew")
	case none:
		p.line("units", "none would stop, restart, reload or start")
	}
}

// planWord is a node's plan in a word or two.
func planWord(n Planned) string {
	switch {
	case n.Verdict != "":
		return string(n.Verdict)
	case len(n.Actions) == 0:
		return "change"
	case n.Actions[len(n.Actions)-1] == ActActivate:
		return "activate"
	case !has(n.Actions, ActActivate):
		return "boot entry"
	}
	return "switch"
}

func has(actions []Action, a Action) bool {
	for _, one := range actions {
		if one == a {
			return true
		}
	}
	return false
}

func actionWords(actions []Action) string {
	words := map[Action]string{ActCopy: "copy", ActActivate: "activate", ActBootEntry: "make the boot entry"}
	var all []string
	for _, a := range actions {
		all = append(all, words[a])
	}
	return strings.Join(all, ", ")
}

func systems(n Planned) string {
	now := "no NixOS system"
	if n.Now != nil && n.Now.Running != "" {
		now = named(n.Now.Running, n.Now.Label)
	}
	switch {
	case n.Now != nil && n.Now.Running == n.Wanted:
		return now + ", as wanted"
	case n.Wanted == "":
		return now
	}
	wanted := named(n.Wanted, n.WantedLabel)
	if now != wanted {
		return now + " → " + wanted
	}
	was, is := hashes(n.Now.Running, n.Wanted)
	return fmt.Sprintf("%s, %s → %s", now, was, is)
}

// hashes tells two systems of one name apart: by the first characters of their hashes, or by
// all of them.
func hashes(a, b string) (string, string) {
	const few = 8
	a, b = systemHash(a), systemHash(b)
	if !strings.Contains(a+b, "/") && a[:few] != b[:few] {
		return a[:few], b[:few]
	}
	return a, b
}

// named is a system's name, with its label where the name doesn't end in that.
func named(toplevel, label string) string {
	name := systemName(toplevel)
	if label == "" || strings.HasSuffix(name, label) {
		return name
	}
	return name + " (" + label + ")"
}

func plannedGenerations(n Planned) string {
	if n.Now == nil {
		return "-"
	}
	now := or(number(n.Now.Generation), "?")
	switch {
	case n.NextGeneration == 0 && n.Verdict == "" && n.Now.Profile != n.Wanted:
		return now + " → ?"
	case n.NextGeneration == 0 || n.NextGeneration == n.Now.Generation:
		return now
	}
	return fmt.Sprintf("%s → %d", now, n.NextGeneration)
}

func packageWords(c packages.Change) string {
	was, is := strings.TrimSpace(strings.Join(c.Before, ", ")), strings.TrimSpace(strings.Join(c.After, ", "))
	switch {
	case len(c.Before) == 0 || len(c.After) == 0:
		return strings.TrimSpace(c.Name + " " + was + is)
	}
	return fmt.Sprintf("%s %s → %s", c.Name, or(was, "(no version)"), or(is, "(no version)"))
}

func packageCounts(c *packages.Changes) string {
	if c == nil {
		return "-"
	}
	var words []string
	for _, k := range []struct {
		sign string
		n    int
	}{{"~", len(c.Changed)}, {"+", len(c.Added)}, {"-", len(c.Removed)}} {
		if k.n > 0 {
			words = append(words, fmt.Sprint(k.sign, k.n))
		}
	}
	return or(strings.Join(words, " "), "same")
}

func sizeChange(s *SizeChange) string {
	switch {
	case s == nil:
		return "-"
	case s.After == s.Before:
		return "same"
	case s.After < s.Before:
		return "-" + bytesize.Text(s.Before-s.After)
	}
	return "+" + bytesize.Text(s.After-s.Before)
}

func sizeWords(s SizeChange) string {
	if s.Before == s.After {
		return bytesize.Text(s.After) + ", the same"
	}
	return fmt.Sprintf("%s → %s (%s)", bytesize.Text(s.Before), bytesize.Text(s.After), sizeChange(&s))
}

func toSend(c *ToCopy) string {
	switch {
	case c == nil:
		return "-"
	case c.Missing == 0:
		return "nothing"
	}
	return bytesize.Text(c.NarBytes - c.InCachesBytes)
}

func copyWords(c ToCopy) string {
	if c.Missing == 0 {
		return fmt.Sprintf("nothing: the host has all %d paths", c.Paths)
	}
	text := fmt.Sprintf("%d of %d paths, %s unpacked", c.Missing, c.Paths, bytesize.Text(c.NarBytes))
	switch {
	case !c.CachesAsked:
		return text
	case c.InCaches == c.Missing:
		return text + "; the host's caches have all of it"
	case c.InCaches == 0:
		return text + "; the host's caches have nothing of it"
	}
	return text + fmt.Sprintf("; the host's caches have %d of these, %s", c.InCaches, bytesize.Text(c.InCachesBytes))
}

func spaceWords(s Space) string {
	var words []string
	if s.StoreFree >= 0 {
		words = append(words, fmt.Sprintf("the store has %s free and takes %s", bytesize.Text(s.StoreFree), bytesize.Text(s.StoreNeeds)))
	}
	if s.BootFree >= 0 {
		words = append(words, fmt.Sprintf("/boot has %s free and takes %s", bytesize.Text(s.BootFree), bytesize.Text(s.BootNeeds)))
	}
	return or(strings.Join(words, "; "), "the host does not tell what is free")
}

// wrap breaks a text at blanks so that no line is longer than width, later lines
// begin with indent, which is not counted.
func wrap(text string, width int, indent string) string {
	var paragraphs []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		paragraphs = append(paragraphs, fill(strings.Fields(paragraph), width, indent))
	}
	return strings.Join(paragraphs, "\n"+indent)
}

// fill puts words into lines. One that is longer than a line stays whole: a path that
// is broken can't be used.
func fill(words []string, width int, indent string) string {
	var b strings.Builder
	used := 0
	for _, word := range words {
		n := utf8.RuneCountInString(word)
		switch {
		case used == 0:
		case used+1+n > width:
			b.WriteString("\n" + indent)
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}
