// Package verdict turns what was seen of a node into what it means.
//
// It is pure: observations go in, one [Verdict] with its reason comes out,
// and one table ([Table]) says of every verdict what it means,
// whether the host was changed and what a person does next.
// Nothing here looks at an ssh exit status: a verdict is read from the host,
// and what was not seen is [Unknown].
package verdict

// Verdict is the outcome of one node. The zero value is no verdict.
type Verdict string

// The good ones.
const (
	Unchanged Verdict = "unchanged"
	Switched  Verdict = "switched"
	Staged    Verdict = "staged"
)

// The failed ones, in the order in which a deploy meets them.
const (
	EvalFailed       Verdict = "eval-failed"
	BuildFailed      Verdict = "build-failed"
	Unpinned         Verdict = "unpinned"
	Unreachable      Verdict = "unreachable"
	HostKeyRefused   Verdict = "host-key-refused"
	LoginRefused     Verdict = "login-refused"
	ElevationRefused Verdict = "elevation-refused"
	Unusable         Verdict = "unusable"
	WrongHost        Verdict = "wrong-host"
	Stale            Verdict = "stale"
	Refused          Verdict = "refused"
	CopyFailed       Verdict = "copy-failed"
	Unscheduled      Verdict = "unscheduled"
	Locked           Verdict = "locked"
	TimedOut         Verdict = "timed-out"
	ActivationFailed Verdict = "activation-failed"
	Partial          Verdict = "partial"
	Rebooted         Verdict = "rebooted"
	Superseded       Verdict = "superseded"
	Degraded         Verdict = "degraded"
	NoLogin          Verdict = "no-login"
	RolledBack       Verdict = "rolled-back"
	Unfinalized      Verdict = "unfinalized"
)

// Neither good nor failed.
const (
	NotStarted Verdict = "not-started"
	Unknown    Verdict = "unknown"
)

// Class groups verdicts for the exit code.
type Class string

const (
	// Good means that the node came as far as was asked: it runs and boots the wanted
	// system, where that was the goal.
	Good Class = "good"
	// Failed means that it does not, or not wholly.
	Failed Class = "failed"
	// Open means that the host has not answered, so nobody knows.
	Open Class = "open"
	// Neither means that nothing was tried.
	Neither Class = "neither"
)

// Changed says whether the host is another one than before.
type Changed string

const (
	No    Changed = "no"
	Yes   Changed = "yes"
	Maybe Changed = "maybe"
)

// Row is what the table knows of a verdict.
type Row struct {
	Verdict Verdict `json:"verdict"`
	Class   Class   `json:"class"`
	// HostChanged tells whether anything that runs or boots on the host may
	// differ from before. Store paths that were copied do not count.
	HostChanged Changed `json:"hostChanged"`
	// Meaning is one sentence.
	Meaning string `json:"meaning"`
	// Next is the one thing to do now; empty when there is nothing to do.
	Next string `json:"next,omitempty"`
}

var table = []Row{
	{Unchanged, Good, No,
		"The host already runs and boots the wanted system, as far as was asked.",
		""},
	{Switched, Good, Yes,
		"The host runs the wanted system and boots it.",
		""},
	{Staged, Good, Maybe,
		"What was asked for is done, and nothing beyond it.",
		""},
	{EvalFailed, Failed, No,
		"The node's system does not evaluate; the host was not contacted.",
		"Mend the configuration named by Nix's error and run again."},
	{BuildFailed, Failed, No,
		"The node's system does not build; the host was not contacted.",
		"Mend the derivation named by Nix's error and run again."},
	{Unpinned, Failed, No,
		"Pins are required, and the node has no host key of its own that holds; the host was not contacted.",
		"Give the node its hostKey (deploy-ssh hostkeys shows it), or remove what weakens the pin, then run again."},
	{Unreachable, Failed, No,
		"The host could not be reached, or was lost again before anything was changed on it.",
		"Check that the host is up and that its address and port are right, then run again."},
	{HostKeyRefused, Failed, No,
		"The host shows another host key than the one trusted; no login was tried.",
		"Find out why the key changed; if the host was installed again, change the pin or remove the saved key, then run again."},
	{LoginRefused, Failed, No,
		"The host let nobody in with the key and user given.",
		"Check the user, and that the key's public half is in the user's authorized_keys."},
	{ElevationRefused, Failed, No,
		"The login works, but the user may not run commands as root without a password.",
		"Give the login user a rule without a password for sudo or doas, or log in as root."},
	{Unusable, Failed, No,
		"The login works, but the host does not answer as a NixOS host that can be switched.",
		"Mend what the reason names (shell start-up output, the login user, Nix or systemd missing), then run again."},
	{WrongHost, Failed, No,
		"The host that answered is not the one that the node means; nothing was written there.",
		"Mend the node's address, or its expect, then run again."},
	{Stale, Failed, No,
		"The host is not as the plan that was applied has seen it; nothing was written there.",
		"Plan again, look at what would change now, and apply that."},
	{Refused, Failed, No,
		"The host, or a check before the switch, refused this system; nothing was activated.",
		"Mend what the reason names. Where it says that the change needs a reboot: --goal boot --reboot."},
	{CopyFailed, Failed, No,
		"The closure did not arrive whole; nothing was activated.",
		"Mend what Nix's error names and run again; what has arrived is not sent again."},
	{Unscheduled, Failed, No,
		"systemd on the host did not start the switch; nothing was activated.",
		"Mend what systemd's error names and run again."},
	{Locked, Failed, No,
		"Another switch held the lock for the whole retry budget; nothing was activated.",
		"Wait for the holder to end, or end it, then run again."},
	{TimedOut, Failed, Maybe,
		"The switch ran longer than its limit and was stopped.",
		"Look at the host's jobs (systemctl list-jobs), mend what hangs, then run again: it goes on from where it stopped."},
	{ActivationFailed, Failed, Maybe,
		"The activation failed. The boot entry was not touched: a reboot starts the system that the host booted by default before.",
		"Read the switch's log, mend the system and run again."},
	{Partial, Failed, Yes,
		"The new system was activated, but not all of its units were started. The boot entry was not touched.",
		"Run again: the switch goes on from the lists it left."},
	{Rebooted, Failed, Maybe,
		"The host rebooted during the switch and does not run the wanted system.",
		"Find out why it rebooted, then run again."},
	{Superseded, Failed, Maybe,
		"Another switch has meanwhile brought the host to another system.",
		"Find out who else deploys to this host, then run again."},
	{Degraded, Failed, Yes,
		"The host runs the wanted system, but units failed that did not fail before. The boot entry was not touched.",
		"Look at the units named (systemctl status UNIT), mend them and run again."},
	{NoLogin, Failed, Yes,
		"The host runs the wanted system, but a fresh login fails. The system profile and the boot entry were not touched: a reboot starts the system that the host booted by default before.",
		"Mend what keeps sshd from letting you in; if you can't reach the host, reboot it (unless a note says that this starts the same system)."},
	{RolledBack, Failed, Maybe,
		"No fresh login confirmed the new system in time, so the host went back to the old one by itself.",
		"Find out what in the new system cut the host off, then run again."},
	{Unfinalized, Failed, Maybe,
		"The default boot entry does not lead to the wanted system: a reboot starts another one.",
		"Mend what the reason names and run again; where the wanted system runs already, only the boot entry is then made."},
	{NotStarted, Neither, No,
		"Nothing was done on this node.",
		"Run again."},
	{Unknown, Open, Maybe,
		"What came of the switch was not seen: it may still be running or may have ended either way.",
		"deploy-ssh status tells once the host can be reached; running again asks the host first, too."},
}

// Table returns all verdicts in the order of a deploy. The caller owns the slice.
func Table() []Row { return append([]Row(nil), table...) }

// Row returns what the table knows of v. It panics for a verdict that is not
// in the table, which no value made by this package is.
func (v Verdict) Row() Row {
	for _, r := range table {
		if r.Verdict == v {
			return r
		}
	}
	panic("verdict: " + string(v) + " is not in the table")
}

// Good reports whether the node came as far as was asked.
func (v Verdict) Good() bool { return v.Row().Class == Good }

// Exit codes of the program.
const (
	ExitGood        = 0
	ExitFailed      = 1
	ExitUsage       = 2 // usage, map or settings error; no host was contacted
	ExitUnknown     = 3
	ExitDegraded    = 4
	ExitDrift       = 5 // of status alone: a host is not as wanted
	ExitInterrupted = 130
)

// ExitCode is the exit code of a run with these verdicts: an interrupted run
// is 130 whatever the nodes say; else any failure but degraded is 1, else any
// unknown is 3, else any degraded is 4, else 0.
func ExitCode(verdicts []Verdict, interrupted bool) int {
	if interrupted {
		return ExitInterrupted
	}
	var failed, unknown, degraded bool
	for _, v := range verdicts {
		row := v.Row()
		switch {
		case v == Degraded:
			degraded = true
		case row.Class == Failed, row.Class == Neither:
			// A node that was not started is not as asked, so the run did not succeed.
			failed = true
		case row.Class == Open:
			unknown = true
		}
	}
	switch {
	case failed:
		return ExitFailed
	case unknown:
		return ExitUnknown
	case degraded:
		return ExitDegraded
	}
	return ExitGood
}
