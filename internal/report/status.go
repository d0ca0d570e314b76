package report

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// statusTable prints what hosts were seen to be: a line each, and below what
// needs more words.
func statusTable(all []Status, s Summary) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tSTATE\tGENERATION\tRUNS\tBOOTS")
	good := 0
	for _, st := range all {
		word := "as wanted"
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
			or(systemName(st.Running), "-"), or(systemName(st.BootEntry), "-"))
	}
	_ = table.Flush()
	for _, st := range all {
		var lines []string
		say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		if st.Reason != "" {
			say("%s", st.Reason)
		}
		if len(st.Drift) > 0 {
			say("drift: %s", strings.Join(st.Drift, "; "))
			if st.Wanted != "" && st.Running != st.Wanted {
				say("wanted: %s", st.Wanted)
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
		for _, r := range st.Runs {
			say("run %s", r)
		}
		if len(lines) > 0 {
			fmt.Fprintf(&b, "\n%s:\n  %s\n", st.Node, strings.ReplaceAll(Printable(strings.Join(lines, "\n")), "\n", "\n  "))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", ending(len(all), good, "as wanted", s))
	return b.String()
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
