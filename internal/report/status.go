package report

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// statusTable prints what hosts were seen to be: a line each, and below what
// needs more words.
func statusTable(all []Status, s Summary, verbose bool) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tSTATE\tGENERATION\tRUNS\tBOOTS")
	good, what := 0, "seen"
	for _, st := range all {
		word := "as wanted"
		if st.Wanted != "" {
			what = word
		}
		switch {
		case st.Verdict != "":
			word = string(st.Verdict)
		case len(st.Drift) > 0:
			word = "drift"
		case st.Wanted == "":
			word = "seen"
		}
		if st.Verdict == "" && len(st.Drift) == 0 {
			good++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", st.Node, word, or(number(st.Generation), "-"),
			or(Printable(systemName(st.Running)), "-"), boots(st))
	}
	_ = table.Flush()
	for _, st := range all {
		if lines := statusLines(st, verbose); len(lines) > 0 {
			fmt.Fprintf(&b, "\n%s:\n  %s\n", st.Node, strings.ReplaceAll(Printable(strings.Join(lines, "\n")), "\n", "\n  "))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", ending(len(all), good, what, s))
	return b.String()
}

// fewGenerations is how many of a host's generations are shown where they are no
// more than a help.
const fewGenerations = 5

// statusLines are what there is to say of a host below the table: of one that is as
// wanted only what needs a person, unless all is asked for.
func statusLines(st Status, verbose bool) []string {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if st.Reason != "" {
		say("%s", st.Reason)
	}
	if len(st.Drift) > 0 {
		say("drift: %s", strings.Join(st.Drift, "; "))
	}
	if st.Verdict == "" && (verbose || len(st.Drift) > 0) {
		say("running: %s", or(st.Running, "no NixOS system"))
		for _, other := range []struct{ what, system string }{
			{"booted", st.Booted}, {"profile", st.Profile}, {"boot entry", st.BootEntry}, {"wanted", st.Wanted},
		} {
			if other.system != "" && (verbose || other.system != st.Running) {
				say("%s: %s", other.what, other.system)
			}
		}
		if st.BootEntry == "" && st.Container == "" {
			say("boot entry: not to be read")
		}
	}
	if len(st.FailedUnits) > 0 {
		say("failed units: %s", strings.Join(st.FailedUnits, ", "))
	}
	if st.LockHolder != "" {
		say("the lock of switch-to-configuration is held by %s", st.LockHolder)
	}
	if len(st.NeedsReboot) > 0 && st.Container == "" {
		say("reboot advised for the new %s", strings.Join(st.NeedsReboot, ", "))
	}
	for _, r := range notableRuns(st, verbose) {
		say("run %s", r)
	}
	if st.Verdict == "" && (verbose || len(st.Drift) > 0) {
		lines = append(lines, generationLines(st, verbose)...)
	}
	return lines
}

// boots is what the table says of the boot entry, in words where it can be: two names of
// systems are wider than a terminal, and a rebuilt system has the name of the one before.
func boots(st Status) string {
	running, booting := systemName(st.Running), systemName(st.BootEntry)
	switch {
	case st.BootEntry != "" && st.BootEntry == st.Running:
		return "the same"
	case booting != "" && booting == running:
		return "another one"
	}
	return or(Printable(booting), "-")
}

// notableRuns are the records of earlier deploys that are worth a line: the last one,
// of a host that is as wanted only if it has not ended well, or all if all is asked for.
func notableRuns(st Status, all bool) []string {
	well := st.LastRun != nil && st.LastRun.State == "ended" && st.LastRun.ExitStatus == "0"
	switch {
	case all || len(st.Runs) == 0:
		return st.Runs
	case well && len(st.Drift) == 0:
		return nil
	}
	return st.Runs[len(st.Runs)-1:]
}

// generationLines are the generations, the newest first.
func generationLines(st Status, all bool) []string {
	var lines []string
	for i, g := range slices.Backward(st.Generations) {
		if !all && len(lines) == fewGenerations {
			lines = append(lines, fmt.Sprintf("… and %d older generations", i+1))
			break
		}
		var marks []string
		for _, mark := range []struct{ word, system string }{{"wanted", st.Wanted}, {"runs", st.Running}, {"boots", st.BootEntry}} {
			if g.System == mark.system {
				marks = append(marks, mark.word)
			}
		}
		line := fmt.Sprintf("generation %d of %s: %s", g.Number, g.Time.Format("2006-01-02 15:04"), named(g.System, g.Label))
		if len(marks) > 0 {
			line += " (" + strings.Join(marks, ", ") + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
