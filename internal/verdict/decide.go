package verdict

import (
	"fmt"
	"slices"
	"strings"
)

// Host is what was seen of a host at one moment.
type Host struct {
	// BootID is the kernel's boot id; another one means that the host rebooted.
	BootID string
	// Running, Booted and Profile are the store paths that /run/current-system,
	// /run/booted-system and /nix/var/nix/profiles/system lead to; empty when absent.
	Running, Booted, Profile string
	// Generation is the number of the system profile's generation; 0 when there is none.
	Generation int
	// Loader names the boot loader whose default entry was read, such as
	// "systemd-boot"; empty when none was recognised.
	Loader string
	// BootEntry is the toplevel that the loader's default entry boots.
	BootEntry string
	// Container is the container manager's name; empty on a machine or VM.
	Container string
	// Lists are the files of /run/nixos that a switch which did not finish
	// leaves behind, such as "start-list".
	Lists []string
	// FailedUnits are the units in state failed, or between restarts after a
	// failure, sorted.
	FailedUnits []string
	// UnitsUnread is why they could not be listed; empty when they were.
	UnitsUnread string
}

// Boots reports whether the next boot leads to toplevel, as far as that can be read.
// A container boots whatever its manager starts: there the profile is all there is.
// Where the loader is not one that can be read, proven is false and boots tells
// of the profile alone.
func (h Host) Boots(toplevel string) (boots, proven bool) {
	switch {
	case h.Profile != toplevel:
		return false, true
	case h.Container != "":
		return true, true
	case h.Loader == "":
		return true, false
	}
	return h.BootEntry == toplevel, true
}

// Reboots says where a reboot leads whose boot entry this deploy has not touched,
// when that is not to the system that ran before it: an earlier deploy may have
// chosen another one to boot. Empty when a reboot goes back, or when nobody knows.
func (h Host) Reboots(wanted string) string {
	leads := h.BootEntry
	if h.Container != "" {
		leads = h.Profile
	}
	switch leads {
	case "", h.Running:
		return ""
	case wanted:
		return "a reboot starts the wanted system, not the one that ran before: an earlier deploy made its boot entry"
	}
	return "a reboot starts " + leads + ", not the system that ran before: an earlier deploy made its boot entry"
}

// Finished reports whether the host runs toplevel and no switch left anything to do.
func (h Host) Finished(toplevel string) bool {
	return h.Running == toplevel && len(h.Lists) == 0
}

// Switch is what was seen of one supervised run of switch-to-configuration.
type Switch struct {
	// NotScheduled is why the run could not be started; empty when it was.
	NotScheduled string
	// Unit is the transient unit's name.
	Unit string
	// Ended is whether the run's result was read. Without it nothing is known
	// of the end, whatever the connection said.
	Ended bool
	// Superseded is set when the run was not started because the host ran another
	// system by then than when it was decided on.
	Superseded bool
	// Gone is set when the run's unit was seen to be over without a result. A kill
	// of all its processes at once takes along what was to record the end.
	Gone bool
	// StillRunning is set when the run was seen alive after its deadline.
	StillRunning bool
	// ServiceResult, ExitCode and ExitStatus are systemd's words, as in
	// systemd.exec(5) "Environment Variables Set or Propagated by the Service Manager".
	ServiceResult, ExitCode, ExitStatus string
	// LockHeld is whether the last try ended on the lock; Holder names who has it.
	LockHeld bool
	Holder   string
	// Jobs are the jobs of the host's systemd that ran when the run's time was
	// over, each as "start of UNIT".
	Jobs []string
	// Journal is the last word of switch-to-configuration in the host's journal,
	// read when there was no result.
	Journal string
	// Tries is how often the switch was tried.
	Tries int
	// Words are what the switch itself said of its failure.
	Words Words
}

// Words are the lines of a switch's log that carry meaning.
// The texts are those of switch-to-configuration in nixpkgs.
type Words struct {
	// FailedUnits are from "warning: the following units failed: a, b".
	FailedUnits []string
	// ActivateFailed is set when `activate` failed. Its code, 2, is overwritten by a
	// failed unit's 4, also by one that had failed before.
	ActivateFailed bool
	// RefusedJobs are the lines "Failed to start|restart|reload|stop UNIT".
	RefusedJobs []string
	// UserActivation are the users of "warning: user activation for NAME failed".
	UserActivation []string
	// Check is set by "Pre-switch checks failed" and names the check where it was named.
	Check string
	// Inhibited is set when critical components differ and the switch was refused.
	Inhibited bool
	// NoLogind is set when logind could not be asked for its users.
	NoLogind bool
	// LastError is the last line that reads as an error, for the reason.
	LastError string
}

// code is the exit code as a number; ok is false when a signal ended the run.
func (s Switch) code() (int, bool) {
	if s.ExitCode != "exited" {
		return 0, false
	}
	var n int
	if _, err := fmt.Sscanf(s.ExitStatus, "%d", &n); err != nil {
		return 0, false
	}
	return n, true
}

// ending says in words how the run ended.
func (s Switch) ending() string {
	n, exited := s.code()
	text := "switch-to-configuration ended with exit code " + s.ExitStatus
	if !exited {
		text = fmt.Sprintf("switch-to-configuration was ended by signal %s", s.ExitStatus)
	}
	if exited && n == 0 {
		return "switch-to-configuration ended with exit code 0"
	}
	if s.Words.LastError != "" {
		text += ": " + s.Words.LastError
	}
	return text
}

// Decision is a verdict with the sentence that explains it in this case.
type Decision struct {
	Verdict Verdict
	// Reason is what was seen; empty for a good verdict that needs no explanation.
	Reason string
	// Notes are true things that do not change the verdict.
	Notes []string
}

// Activated is what was seen of an activation.
type Activated struct {
	Wanted string
	// Before is the host before the first activation of the wanted system.
	Before Host
	Switch Switch
	// After is the host after the run; it counts only when Seen.
	After Host
	Seen  bool
	// Ignore tells units whose failure is not to count; nil ignores none.
	Ignore func(unit string) bool
}

// Activation judges the run of `switch-to-configuration test`.
// A good end is Switched, which means only that the boot entry may be made.
func Activation(a Activated) Decision {
	s, wanted, before, after := a.Switch, a.Wanted, a.Before, a.After
	if a.Ignore != nil {
		// Ignored is what had failed before anyhow.
		ignored := filter(append(slices.Clone(after.FailedUnits), s.Words.FailedUnits...), a.Ignore)
		before.FailedUnits = append(slices.Clone(before.FailedUnits), ignored...)
	}
	moved := after.Running == wanted
	switch {
	case s.NotScheduled != "":
		return Decision{Verdict: Unscheduled, Reason: s.NotScheduled}
	case !a.Seen:
		return Decision{Verdict: Unknown, Reason: "the result of the switch was not read; its unit is " + s.Unit}
	case after.BootID != before.BootID && !moved:
		return Decision{Verdict: Rebooted, Reason: "the host rebooted during the switch and runs " + show(after.Running)}
	case after.BootID != before.BootID:
		return Decision{Verdict: Unknown, Reason: "the host rebooted during the switch; it runs the wanted system, but how it came there was not seen"}
	case s.Superseded:
		return Decision{Verdict: Superseded, Reason: "the switch was not started, since the host ran another system by then: " + show(after.Running)}
	case s.StillRunning:
		return Decision{Verdict: TimedOut, Reason: fmt.Sprintf("unit %s still runs after its limit", s.Unit)}
	case !s.Ended && s.Gone && !moved:
		return Decision{Verdict: ActivationFailed, Reason: fmt.Sprintf("the switch is over and left no result, as when all its processes are killed (unit %s), and the host runs %s", s.Unit, show(after.Running)) + journal(s)}
	case !s.Ended && s.Gone:
		return Decision{Verdict: Partial, Reason: fmt.Sprintf("the switch is over and left no result, as when all its processes are killed (unit %s)", s.Unit) + journal(s) + left(after.Lists)}
	case !s.Ended:
		return Decision{Verdict: Unknown, Reason: "the switch left no result; its unit was " + s.Unit}
	case s.LockHeld && moved && before.Running != wanted:
		// An earlier try of this run had got further than the lock.
		return Decision{Verdict: Partial, Reason: "activated, and then " + lockReason(s) + left(after.Lists)}
	case s.LockHeld:
		// Also when a run time limit ended the wait for the lock.
		return Decision{Verdict: Locked, Reason: lockReason(s)}
	case s.ServiceResult == "timeout":
		return Decision{Verdict: TimedOut, Reason: fmt.Sprintf("unit %s was stopped at its run time limit", s.Unit) + jobs(s)}
	}

	code, exited := s.code()
	newly := minus(after.FailedUnits, before.FailedUnits)
	switch {
	case exited && code == 100 && before.Running == after.Running:
		return Decision{Verdict: Refused, Reason: "the new system's init interface differs from the running one's: it needs a reboot"}
	case exited && code == 1 && s.Words.Inhibited && before.Running == after.Running:
		return Decision{Verdict: Refused, Reason: "critical components change, which needs a reboot: " + s.Words.LastError}
	case exited && code == 1 && s.Words.Check != "" && before.Running == after.Running:
		return Decision{Verdict: Refused, Reason: "pre-switch check failed: " + s.Words.Check}
	case !moved && after.Running != before.Running && after.Running != "":
		return Decision{Verdict: Superseded, Reason: fmt.Sprintf("%s, and the host runs %s, which is neither the wanted system nor the one before", s.ending(), after.Running)}
	case !moved:
		return Decision{Verdict: ActivationFailed,
			Reason: fmt.Sprintf("%s, and the host runs %s", s.ending(), show(after.Running))}
	case exited && (code == 2 || s.Words.ActivateFailed):
		return Decision{Verdict: ActivationFailed, Reason: s.ending() + named("; failed units: ", newly)}
	case exited && code == 4:
		return failedUnits(before, s, newly, after)
	case !exited || code != 0:
		return Decision{Verdict: Partial, Reason: s.ending() + left(after.Lists)}
	case len(after.Lists) > 0:
		return Decision{Verdict: Partial, Reason: s.ending() + left(after.Lists)}
	}
	return failedUnits(before, s, newly, after)
}

// failedUnits judges an activation that went through: exit code 0 or 4, and
// the host runs the wanted system.
//
// A unit that had failed before and is wanted by an active target is tried by
// every switch, fails again and gives 4. That is not this deploy's doing.
// Everything else behind a 4 is.
func failedUnits(before Host, s Switch, newly []string, after Host) Decision {
	if after.UnitsUnread != "" {
		return Decision{Verdict: Unknown, Reason: "the host runs the wanted system, but its failed units could not be listed: " + after.UnitsUnread}
	}
	code, _ := s.code()
	var notes []string
	if old := intersect(after.FailedUnits, before.FailedUnits); len(old) > 0 {
		notes = append(notes, "failed before and still: "+strings.Join(old, ", "))
	}
	var reasons []string
	if len(newly) > 0 {
		reasons = append(reasons, "failed units: "+strings.Join(newly, ", "))
	}
	if code == 4 {
		if named := minus(minus(s.Words.FailedUnits, before.FailedUnits), newly); len(named) > 0 {
			reasons = append(reasons, "failed during the switch: "+strings.Join(named, ", "))
		}
		for _, line := range s.Words.RefusedJobs {
			// "Failed to start UNIT" of a unit that had failed before is the same news.
			if !slices.ContainsFunc(before.FailedUnits, func(u string) bool { return strings.HasSuffix(line, " "+u) }) {
				reasons = append(reasons, line)
			}
		}
		if len(s.Words.UserActivation) > 0 {
			reasons = append(reasons, "user activation failed for "+strings.Join(s.Words.UserActivation, ", "))
		}
		explained := len(s.Words.FailedUnits) > 0 && len(minus(s.Words.FailedUnits, before.FailedUnits)) == 0
		if len(reasons) == 0 && !explained {
			reasons = append(reasons, s.ending()+", and it named no unit that had failed before")
		}
	}
	if len(reasons) > 0 {
		return Decision{Verdict: Degraded, Reason: strings.Join(reasons, "; ") + left(after.Lists), Notes: notes}
	}
	if len(after.Lists) > 0 {
		return Decision{Verdict: Partial, Reason: s.ending() + left(after.Lists), Notes: notes}
	}
	return Decision{Verdict: Switched, Notes: notes}
}

// Finalization judges the making of the boot entry, after the activation went through.
// before is the host as it was then, which must still run the same system;
// profileError is why the profile could not be set, empty when it was.
func Finalization(wanted string, before Host, profileError string, s Switch, after Host, seen bool) Decision {
	boots, proven := after.Boots(wanted)
	switch {
	case profileError != "":
		return Decision{Verdict: Unfinalized, Reason: "setting the system profile: " + profileError}
	case s.NotScheduled != "":
		return Decision{Verdict: Unfinalized, Reason: s.NotScheduled}
	case !seen:
		return Decision{Verdict: Unknown, Reason: "whether the host boots the wanted system was not read; the unit is " + s.Unit}
	case after.BootID != before.BootID && after.Running == wanted && boots && proven:
		// Nothing proves a boot entry better than having booted from it.
		return Decision{Verdict: Switched, Notes: []string{"the host rebooted while its boot entry was made, into the wanted system"}}
	case after.BootID != before.BootID:
		return Decision{Verdict: Rebooted, Reason: "the host rebooted while its boot entry was made and runs " + show(after.Running)}
	case s.Superseded, after.Running != before.Running:
		return Decision{Verdict: Superseded, Reason: fmt.Sprintf("the host ran %s, but now runs %s", show(before.Running), show(after.Running))}
	case s.StillRunning:
		return Decision{Verdict: Unfinalized, Reason: fmt.Sprintf("the boot loader run %s goes on after its limit; it was left alone", s.Unit)}
	case !s.Ended:
		return Decision{Verdict: Unfinalized, Reason: "the boot loader run left no result; its unit was " + s.Unit}
	case s.LockHeld:
		return Decision{Verdict: Unfinalized, Reason: lockReason(s)}
	}
	if code, exited := s.code(); !exited || code != 0 {
		return Decision{Verdict: Unfinalized, Reason: s.ending()}
	}
	var notes []string
	if late := minus(after.FailedUnits, before.FailedUnits); len(late) > 0 {
		notes = append(notes, "failed since the activation was judged: "+strings.Join(late, ", "))
	}
	switch {
	case !boots && after.Profile != wanted:
		return Decision{Verdict: Unfinalized, Reason: "the system profile leads to " + show(after.Profile)}
	case !boots:
		return Decision{Verdict: Unfinalized,
			Reason: fmt.Sprintf("switch-to-configuration ended with exit code 0, but the default entry of %s boots %s", after.Loader, show(after.BootEntry))}
	case !proven:
		notes = append(notes, "the boot entry can't be read on this host (no known boot loader, or a default that is worked out at boot), so it isn't proven; the profile is set")
	}
	return Decision{Verdict: Switched, Notes: notes}
}

func jobs(s Switch) string {
	if len(s.Jobs) == 0 {
		return ""
	}
	return "; systemd was still at: " + strings.Join(s.Jobs, ", ")
}

func journal(s Switch) string {
	if s.Journal == "" {
		return ""
	}
	return "; the last of it in the journal: " + s.Journal
}

// DryRun judges the run of `switch-to-configuration dry-activate`, which changes nothing.
func DryRun(s Switch, seen bool) Decision {
	code, exited := s.code()
	switch {
	case s.NotScheduled != "":
		return Decision{Verdict: Unscheduled, Reason: s.NotScheduled}
	case !seen || !s.Ended:
		return Decision{Verdict: Unknown, Reason: "the result of the dry run was not read; its unit is " + s.Unit}
	case s.LockHeld:
		return Decision{Verdict: Locked, Reason: lockReason(s)}
	case exited && code == 0:
		return Decision{Verdict: Staged, Reason: "a dry run: nothing was activated"}
	}
	return Decision{Verdict: Refused, Reason: s.ending()}
}

func named(text string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return text + strings.Join(names, ", ")
}

func lockReason(s Switch) string {
	reason := "the lock of switch-to-configuration was held"
	if s.Holder != "" {
		reason += " by " + s.Holder
	}
	return fmt.Sprintf("%s through %d tries", reason, s.Tries)
}

func left(lists []string) string {
	if len(lists) == 0 {
		return ""
	}
	return "; left to do in /run/nixos: " + strings.Join(lists, ", ")
}

func show(path string) string {
	if path == "" {
		return "no system"
	}
	return path
}

func minus(a, b []string) []string {
	return filter(a, func(s string) bool { return !slices.Contains(b, s) })
}

func intersect(a, b []string) []string {
	return filter(a, func(s string) bool { return slices.Contains(b, s) })
}

func filter(a []string, keep func(string) bool) []string {
	var out []string
	for _, s := range a {
		if keep(s) {
			out = append(out, s)
		}
	}
	return out
}
