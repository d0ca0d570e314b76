package verdict

import (
	"slices"
	"strings"
	"testing"
)

const (
	oldSystem = "/nix/store/old"
	wanted    = "/nix/store/new"
)

// host is a host that runs and boots a system.
func host(running string, change ...func(*Host)) Host {
	h := Host{BootID: "boot-1", Running: running, Booted: oldSystem, Profile: oldSystem, Generation: 1, Loader: "systemd-boot", BootEntry: oldSystem}
	for _, c := range change {
		c(&h)
	}
	return h
}

func failed(units ...string) func(*Host) { return func(h *Host) { h.FailedUnits = units } }
func lists(names ...string) func(*Host)  { return func(h *Host) { h.Lists = names } }
func rebooted(h *Host)                   { h.BootID = "boot-2" }

// ended is a run that ended by itself.
func ended(status string, words ...Words) Switch {
	s := Switch{Unit: "u.service", Ended: true, ServiceResult: "success", ExitCode: "exited", ExitStatus: status, Tries: 1}
	for _, w := range words {
		s.Words = w
	}
	return s
}

func killed(signal string) Switch {
	return Switch{Unit: "u.service", Ended: true, ServiceResult: "success", ExitCode: "killed", ExitStatus: signal}
}

func TestActivation(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before Host
		s      Switch
		after  Host
		unseen bool
		ignore func(string) bool
		want   Verdict
		reason string
	}{
		{name: "done", before: host(oldSystem), s: ended("0"), after: host(wanted), want: Switched},
		{name: "done again", before: host(wanted, lists("start-list")), s: ended("0"), after: host(wanted), want: Switched},
		{name: "0 without activate", before: host(oldSystem), s: ended("0"), after: host(oldSystem), want: ActivationFailed, reason: "exit code 0, and the host runs " + oldSystem},
		{name: "0 but no system at all", before: host(oldSystem), s: ended("0"), after: host(""), want: ActivationFailed, reason: "no system"},
		{name: "0 and work left", before: host(oldSystem), s: ended("0"), after: host(wanted, lists("start-list")), want: Partial, reason: "start-list"},
		{name: "0 and a unit dies later", before: host(oldSystem), s: ended("0"), after: host(wanted, failed("late.service")), want: Degraded, reason: "late.service"},
		{name: "0 with a unit that had failed before", before: host(oldSystem, failed("old.service")), s: ended("0"), after: host(wanted, failed("old.service")), want: Switched},

		{name: "4 names a new unit", before: host(oldSystem), s: ended("4", Words{FailedUnits: []string{"nginx.service"}}), after: host(wanted, failed("nginx.service")), want: Degraded, reason: "nginx.service"},
		{name: "4 for a unit that recovered", before: host(oldSystem), s: ended("4", Words{FailedUnits: []string{"nginx.service"}}), after: host(wanted), want: Degraded, reason: "failed during the switch: nginx.service"},
		{name: "4 explained by an old failure", before: host(oldSystem, failed("old.service")), s: ended("4", Words{FailedUnits: []string{"old.service"}, RefusedJobs: []string{"Failed to start old.service"}}), after: host(wanted, failed("old.service")), want: Switched},
		{name: "4 explained by nothing", before: host(oldSystem), s: ended("4"), after: host(wanted), want: Degraded, reason: "named no unit"},
		{name: "4 for a user", before: host(oldSystem), s: ended("4", Words{UserActivation: []string{"alice"}}), after: host(wanted), want: Degraded, reason: "alice"},
		{name: "4 for a refused job", before: host(oldSystem), s: ended("4", Words{RefusedJobs: []string{"Failed to reload x.service"}}), after: host(wanted), want: Degraded, reason: "Failed to reload x.service"},
		{name: "4 not moved", before: host(oldSystem), s: ended("4"), after: host(oldSystem), want: ActivationFailed, reason: "exit code 4"},

		{name: "4 for an ignored unit", before: host(oldSystem), s: ended("4", Words{FailedUnits: []string{"flaky.service"}, RefusedJobs: []string{"Failed to start flaky.service"}}), after: host(wanted, failed("flaky.service")), ignore: func(u string) bool { return u == "flaky.service" }, want: Switched},
		{name: "0 with an ignored unit and another", before: host(oldSystem), s: ended("0"), after: host(wanted, failed("flaky.service", "nginx.service")), ignore: func(u string) bool { return u == "flaky.service" }, want: Degraded, reason: "failed units: nginx.service"},
		{name: "0 but units can't be listed", before: host(oldSystem), s: ended("0"), after: host(wanted, func(h *Host) { h.UnitsUnread = "no answer" }), want: Unknown, reason: "no answer"},
		{name: "another switch came between", before: host(oldSystem), s: ended("0"), after: host("/nix/store/third"), want: Superseded, reason: "/nix/store/third"},
		{name: "limit while waiting for the lock", before: host(oldSystem), s: Switch{Unit: "u", Ended: true, ServiceResult: "timeout", ExitCode: "killed", ExitStatus: "TERM", LockHeld: true, Holder: "pid 7 (x)"}, after: host(oldSystem), want: Locked, reason: "pid 7"},
		{name: "2 hidden behind a 4 that old failures explain", before: host(oldSystem, failed("old.service")), s: ended("4", Words{ActivateFailed: true, FailedUnits: []string{"old.service"}, LastError: "Failed to run activate script"}), after: host(wanted, failed("old.service")), want: ActivationFailed, reason: "Failed to run activate script"},
		{name: "not started, another system runs", before: host(oldSystem), s: Switch{Superseded: true}, after: host("/nix/store/third"), want: Superseded, reason: "/nix/store/third"},
		{name: "lock held after a first try had activated", before: host(oldSystem), s: Switch{Unit: "u", Ended: true, ServiceResult: "success", ExitCode: "exited", ExitStatus: "75", LockHeld: true, Tries: 2}, after: host(wanted, lists("start-list")), want: Partial, reason: "lock"},
		{name: "2", before: host(oldSystem), s: ended("2", Words{LastError: "Failed to run activate script"}), after: host(wanted), want: ActivationFailed, reason: "Failed to run activate script"},
		{name: "2 not moved", before: host(oldSystem), s: ended("2"), after: host(oldSystem), want: ActivationFailed},
		{name: "1 pre-switch check", before: host(oldSystem), s: ended("1", Words{Check: "disk"}), after: host(oldSystem), want: Refused, reason: "disk"},
		{name: "1 inhibitor", before: host(oldSystem), s: ended("1", Words{Inhibited: true, LastError: "dbus-implementation : dbus -> broker"}), after: host(oldSystem), want: Refused, reason: "dbus -> broker"},
		{name: "1 bus dead", before: host(oldSystem), s: ended("1", Words{LastError: "Error: Failed to open dbus connection"}), after: host(oldSystem), want: ActivationFailed, reason: "dbus"},
		{name: "1 bus lost half-way", before: host(oldSystem), s: ended("1"), after: host(wanted, lists("start-list")), want: Partial, reason: "start-list"},
		{name: "100", before: host(oldSystem), s: ended("100"), after: host(oldSystem), want: Refused, reason: "reboot"},
		{name: "100 moved all the same", before: host(oldSystem), s: ended("100"), after: host(wanted), want: Partial},
		{name: "11 is the lock", before: host(oldSystem), s: Switch{Unit: "u", Ended: true, ServiceResult: "success", ExitCode: "exited", ExitStatus: "75", LockHeld: true, Holder: "pid 7 (sleep)", Tries: 60}, after: host(oldSystem), want: Locked, reason: "pid 7 (sleep) through 60 tries"},
		{name: "11 is logind", before: host(oldSystem), s: ended("11", Words{NoLogind: true, LastError: "Unable to list users with logind: x"}), after: host(wanted, lists("start-list")), want: Partial, reason: "logind"},
		{name: "101 half-way", before: host(oldSystem), s: ended("101"), after: host(wanted, lists("start-list")), want: Partial},
		{name: "101 before", before: host(oldSystem), s: ended("101"), after: host(oldSystem), want: ActivationFailed},
		{name: "126", before: host(oldSystem), s: ended("126"), after: host(oldSystem), want: ActivationFailed, reason: "126"},
		{name: "127 moved", before: host(oldSystem), s: ended("127"), after: host(wanted), want: Partial},
		{name: "137 moved", before: host(oldSystem), s: ended("137"), after: host(wanted), want: Partial},
		{name: "255 is no connection error", before: host(oldSystem), s: ended("255"), after: host(oldSystem), want: ActivationFailed, reason: "exit code 255"},
		{name: "killed before", before: host(oldSystem), s: killed("KILL"), after: host(oldSystem), want: ActivationFailed, reason: "signal KILL"},
		{name: "killed half-way", before: host(oldSystem), s: killed("KILL"), after: host(wanted, lists("start-list")), want: Partial, reason: "signal KILL"},
		{name: "stopped looks like success to systemd", before: host(oldSystem), s: killed("TERM"), after: host(wanted), want: Partial, reason: "signal TERM"},

		{name: "not scheduled", before: host(oldSystem), s: Switch{NotScheduled: "Failed to start transient service unit"}, after: host(oldSystem), want: Unscheduled, reason: "transient"},
		{name: "unseen", before: host(oldSystem), s: Switch{Unit: "u.service"}, unseen: true, want: Unknown, reason: "u.service"},
		{name: "unseen after a good end", before: host(oldSystem), s: ended("0"), unseen: true, want: Unknown},
		{name: "no result", before: host(oldSystem), s: Switch{Unit: "u.service"}, after: host(wanted), want: Unknown, reason: "left no result"},
		{name: "gone without a result, not moved", before: host(oldSystem), s: Switch{Unit: "u.service", Gone: true, Journal: "switching to x"}, after: host(oldSystem), want: ActivationFailed, reason: "switching to x"},
		{name: "gone without a result, moved", before: host(oldSystem), s: Switch{Unit: "u.service", Gone: true}, after: host(wanted), want: Partial, reason: "u.service"},
		{name: "rebooted into the old one", before: host(oldSystem), s: Switch{Unit: "u.service"}, after: host(oldSystem, rebooted), want: Rebooted},
		{name: "rebooted into the new one", before: host(oldSystem), s: Switch{Unit: "u.service"}, after: host(wanted, rebooted), want: Unknown},
		{name: "run time limit", before: host(oldSystem), s: Switch{Unit: "u.service", Ended: true, ServiceResult: "timeout", ExitCode: "killed", ExitStatus: "TERM"}, after: host(wanted), want: TimedOut, reason: "u.service"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Activation(Activated{Wanted: wanted, Before: tt.before, Switch: tt.s, After: tt.after, Seen: !tt.unseen, Ignore: tt.ignore})
			if got.Verdict != tt.want || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("Activation = %s (%s), want %s with %q", got.Verdict, got.Reason, tt.want, tt.reason)
			}
			if got.Verdict.Good() && (tt.after.Running != wanted || tt.unseen) {
				t.Errorf("false success: %+v", tt.after)
			}
		})
	}
}

// Whatever a switch and a host show, a good verdict needs the wanted system
// running, nothing left to do, no newly failed unit and an end that was read.
func TestActivationNeverFalselyGood(t *testing.T) {
	runs := []Switch{{Unit: "u"}, {Unit: "u", Gone: true}, {NotScheduled: "x"}, killed("KILL"), {Unit: "u", StillRunning: true},
		{Unit: "u", Ended: true, LockHeld: true, ExitCode: "exited", ExitStatus: "75"}}
	for _, status := range []string{"0", "1", "2", "4", "11", "100", "101", "126", "127", "137", "255", "", "x"} {
		runs = append(runs, ended(status))
	}
	for _, s := range runs {
		for _, running := range []string{oldSystem, wanted, ""} {
			for _, left := range [][]string{nil, {"start-list"}} {
				for _, units := range [][]string{nil, {"a.service"}} {
					for _, boot := range []string{"boot-1", "boot-2"} {
						for _, seen := range []bool{true, false} {
							after := host(running, lists(left...), failed(units...))
							after.BootID = boot
							got := Activation(Activated{Wanted: wanted, Before: host(oldSystem), Switch: s, After: after, Seen: seen})
							want := seen && s.Ended && s.ExitStatus == "0" && running == wanted && left == nil && units == nil && boot == "boot-1"
							if got.Verdict.Good() != want {
								t.Errorf("Activation(%+v, %+v, seen %v) = %s", s, after, seen, got.Verdict)
							}
							if !got.Verdict.Good() && got.Reason == "" {
								t.Errorf("Activation(%+v, %+v, seen %v) = %s without a reason", s, after, seen, got.Verdict)
							}
						}
					}
				}
			}
		}
	}
}

func TestFinalization(t *testing.T) {
	good := host(wanted)
	good.Profile, good.BootEntry, good.Generation = wanted, wanted, 2
	with := func(change func(*Host)) Host { h := good; change(&h); return h }
	for _, tt := range []struct {
		name    string
		profile string
		s       Switch
		after   Host
		unseen  bool
		want    Verdict
		reason  string
		notes   int
	}{
		{name: "done", s: ended("0"), after: good, want: Switched},
		{name: "profile not set", profile: "cannot create symlink", after: host(wanted), want: Unfinalized, reason: "cannot create"},
		{name: "not scheduled", s: Switch{NotScheduled: "no"}, after: host(wanted), want: Unfinalized, reason: "no"},
		{name: "unseen", s: ended("0"), unseen: true, want: Unknown},
		{name: "loader failed", s: ended("1", Words{LastError: "Failed to install bootloader"}), after: with(func(h *Host) { h.BootEntry = oldSystem }), want: Unfinalized, reason: "Failed to install bootloader"},
		{name: "loader failed after the entry", s: ended("1"), after: good, want: Unfinalized},
		{name: "0 without an entry", s: ended("0"), after: with(func(h *Host) { h.BootEntry = oldSystem }), want: Unfinalized, reason: "boots " + oldSystem},
		{name: "0 with a loader that names none", s: ended("0"), after: with(func(h *Host) { h.BootEntry = "" }), want: Unfinalized, reason: "no system"},
		{name: "profile moved back", s: ended("0"), after: with(func(h *Host) { h.Profile = oldSystem }), want: Unfinalized, reason: "profile"},
		{name: "lock", s: Switch{Ended: true, LockHeld: true, Tries: 3, Holder: "pid 3 (x)"}, after: host(wanted), want: Unfinalized, reason: "pid 3"},
		{name: "still running", s: Switch{Unit: "b.service", StillRunning: true}, after: host(wanted), want: Unfinalized, reason: "b.service"},
		{name: "left no result", s: Switch{Unit: "b.service"}, after: good, want: Unfinalized, reason: "b.service"},
		{name: "killed", s: killed("KILL"), after: good, want: Unfinalized, reason: "KILL"},
		{name: "unknown loader", s: ended("0"), after: with(func(h *Host) { h.Loader, h.BootEntry = "", "" }), want: Switched, notes: 1},
		{name: "container", s: ended("0"), after: with(func(h *Host) { h.Loader, h.BootEntry, h.Container = "", "", "lxc" }), want: Switched},
		{name: "another system meanwhile", s: ended("0"), after: with(func(h *Host) { h.Running = oldSystem }), want: Superseded, reason: oldSystem},
		{name: "rebooted into the old system", s: Switch{Unit: "b.service"}, after: with(func(h *Host) { h.BootID, h.Running, h.BootEntry = "boot-2", oldSystem, oldSystem }), want: Rebooted, reason: oldSystem},
		{name: "rebooted into the new system", s: Switch{Unit: "b.service"}, after: with(func(h *Host) { h.BootID = "boot-2" }), want: Switched, notes: 1},
		{name: "rebooted into the new system, boots the old one", s: Switch{Unit: "b.service"}, after: with(func(h *Host) { h.BootID, h.BootEntry = "boot-2", oldSystem }), want: Rebooted},
		{name: "not started, another system runs", s: Switch{Superseded: true}, after: with(func(h *Host) { h.Profile = oldSystem }), want: Superseded},
		{name: "a unit fails late", s: ended("0"), after: with(func(h *Host) { h.FailedUnits = []string{"late.service"} }), want: Switched, notes: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := host(wanted)
			got := Finalization(wanted, before, tt.profile, tt.s, tt.after, !tt.unseen)
			if got.Verdict != tt.want || !strings.Contains(got.Reason, tt.reason) || len(got.Notes) != tt.notes {
				t.Errorf("Finalization = %+v, want %s with %q and %d notes", got, tt.want, tt.reason, tt.notes)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		verdicts    []Verdict
		interrupted bool
		want        int
	}{
		{nil, false, 0},
		{[]Verdict{Unchanged, Switched}, false, 0},
		{[]Verdict{Switched, Unreachable}, false, 1},
		{[]Verdict{Degraded}, false, 4},
		{[]Verdict{Degraded, Unknown}, false, 3},
		{[]Verdict{Degraded, Unknown, Locked}, false, 1},
		{[]Verdict{Unknown, Switched}, false, 3},
		{[]Verdict{NotStarted}, false, 1},
		{[]Verdict{Switched, NotStarted}, true, 130},
		{[]Verdict{Switched}, true, 130},
	} {
		if got := ExitCode(tt.verdicts, tt.interrupted); got != tt.want {
			t.Errorf("ExitCode(%v, %v) = %d, want %d", tt.verdicts, tt.interrupted, got, tt.want)
		}
	}
}

// Each row is whole, and only a good verdict may need no next step.
func TestTable(t *testing.T) {
	var seen []Verdict
	for _, row := range Table() {
		if slices.Contains(seen, row.Verdict) {
			t.Errorf("%s stands twice", row.Verdict)
		}
		seen = append(seen, row.Verdict)
		if row.Meaning == "" || row.Class == "" || row.HostChanged == "" || row.Next == "" && row.Class != Good {
			t.Errorf("row %+v has a gap", row)
		}
		if row.Class == Open && row.HostChanged != Maybe {
			t.Errorf("%s is open, but knows whether the host changed", row.Verdict)
		}
		code := ExitCode([]Verdict{row.Verdict}, false)
		if (code == 0) != row.Verdict.Good() {
			t.Errorf("%s alone gives exit code %d", row.Verdict, code)
		}
	}
}

func TestForeseen(t *testing.T) {
	for _, tt := range []struct {
		name            string
		running, wanted Identity
		noCheck         bool
		want            string
	}{
		{"nothing known", Identity{}, Identity{}, false, ""},
		{"same", Identity{"systemd 2", `{"a":"x"}`}, Identity{"systemd 2", `{"a":"x"}`}, false, ""},
		{"interface", Identity{"systemd 2", ""}, Identity{"systemd 3", ""}, false, "init interface"},
		{"interface, unchecked", Identity{"systemd 2", ""}, Identity{"systemd 3", ""}, true, "init interface"},
		{"inhibitor", Identity{"", `{"dbus-implementation":"dbus"}`}, Identity{"", `{"dbus-implementation":"broker"}`}, false, "dbus-implementation: dbus -> broker"},
		{"inhibitor, unchecked", Identity{"", `{"d":"dbus"}`}, Identity{"", `{"d":"broker"}`}, true, ""},
		{"a new key", Identity{"", `{}`}, Identity{"", `{"d":"broker"}`}, false, ""},
		{"a key that is gone", Identity{"", `{"d":"x"}`}, Identity{"", `{}`}, false, ""},
		{"an older system without the file", Identity{}, Identity{"", `{"d":"x"}`}, false, ""},
		{"another form", Identity{"", `["d"]`}, Identity{"", `["e"]`}, false, ""},
	} {
		if got := Foreseen(tt.running, tt.wanted, tt.noCheck); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: Foreseen = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestReboots(t *testing.T) {
	for _, tt := range []struct {
		name string
		host Host
		want string
	}{
		{"boots what runs", Host{Running: "old", Profile: "old", Loader: "grub", BootEntry: "old"}, ""},
		{"boots the wanted system", Host{Running: "old", Profile: "new", Loader: "grub", BootEntry: "new"}, "starts the wanted system"},
		{"boots a third", Host{Running: "old", Profile: "third", Loader: "grub", BootEntry: "third"}, "starts third,"},
		{"the entry was not made", Host{Running: "old", Profile: "new", Loader: "grub", BootEntry: "old"}, ""},
		{"a loader that can't be read", Host{Running: "old", Profile: "new"}, ""},
		{"a container", Host{Running: "old", Profile: "new", Container: "lxc"}, "starts the wanted system"},
		{"a container with a third", Host{Running: "old", Profile: "third", Container: "lxc"}, "starts third,"},
		{"no profile", Host{Running: "old", Loader: "grub", BootEntry: "old"}, ""},
	} {
		if got := tt.host.Reboots("new"); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: Reboots = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestDryRun(t *testing.T) {
	for _, tt := range []struct {
		s    Switch
		seen bool
		want Verdict
	}{
		{ended("0"), true, Staged}, {ended("1"), true, Refused}, {ended("100"), true, Refused}, {ended("0"), false, Unknown},
		{Switch{NotScheduled: "no"}, true, Unscheduled}, {Switch{Ended: true, LockHeld: true}, true, Locked}, {Switch{}, true, Unknown}, {killed("KILL"), true, Refused},
	} {
		if got := DryRun(tt.s, tt.seen).Verdict; got != tt.want {
			t.Errorf("DryRun(%+v, %v) = %s, want %s", tt.s, tt.seen, got, tt.want)
		}
	}
}
