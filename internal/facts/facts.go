// Package facts reads what a host is, runs and boots: one script, one answer.
package facts

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

var (
	//go:embed observe.sh
	observeFunctions string
	// LockFunctions is shell text that defines lock_holder.
	//
	//go:embed lock.sh
	LockFunctions string
)

//go:embed generation.sh
var generationFunctions string

// Functions is shell text that defines observe, for scripts that end in an observation.
var Functions = LockFunctions + observeFunctions

// Observe is a script that reads a host on its way to toplevel, for [Parse].
func Observe(toplevel string) string {
	return Functions + "observe '" + toplevel + "'\n"
}

// Identify is a script that reads no more of a host than who it is, for [Parse]. It
// needs no root.
const Identify = `printf 'uid %s\n' "$(id -u)"
printf 'hostname %s\n' "$(uname -n)"
[ -r /etc/machine-id ] && IFS= read -r id </etc/machine-id && [ -n "$id" ] && printf 'machine-id %s\n' "$id"
echo observed yes
`

// ObserveEarlier is a script that chooses an earlier generation of the host, 0 for
// the one before, and reads the host on its way to that.
func ObserveEarlier(generation int) string {
	return Functions + generationFunctions + fmt.Sprintf("chosen=\nchoose_generation %d\nobserve \"$chosen\"\n", generation)
}

// Run is the record of a supervised run on a host; see package activate.
type Run struct {
	ID string
	// Name is the run's part of the deploy: test, boot, dry-activate or back.
	Name string
	// State is "running", "ended", or "cut" when a crash or reboot ended it.
	State string
	// ExitStatus is systemd's word for how an ended run ended, such as "0" or "KILL".
	ExitStatus string
	Toplevel   string
}

// Host is one observation of a host.
type Host struct {
	verdict.Host
	// UID is the login user's id on the host.
	UID int
	// Machine is the kernel's machine name, such as "x86_64"; see uname(2).
	Machine string
	// HostName and MachineID are the host's own names for itself.
	HostName, MachineID string
	// NixOS is whether the host says it is one, by the tests that
	// switch-to-configuration itself makes: /etc/NIXOS or os-release.
	NixOS bool
	// Systemd is whether systemd runs the host.
	Systemd bool
	// Valid is whether the wanted toplevel, and so its closure,
	// is registered in the host's store.
	Valid bool
	// LockHolder is who holds the lock of switch-to-configuration; empty when nobody does.
	LockHolder string
	// Interface and Inhibitors are the running system's init-interface-version and
	// switch-inhibitors (a JSON object); empty when it has none.
	Interface, Inhibitors string
	// NeedsReboot are the parts of the wanted system that only a reboot brings to
	// run, such as "kernel"; empty while the system isn't there.
	NeedsReboot []string
	// Records are those of earlier and present deploys since boot.
	Records []Run
	// Chosen is the toplevel of the generation that [ObserveEarlier] found; empty
	// when it found none or was not asked.
	Chosen           string
	ChosenGeneration int
	// Baseline is whether an activation was begun since boot that has not ended
	// well; FailedBefore are the units that had failed before it. The failed units
	// of now would be a wrong thing to compare with then.
	Baseline     bool
	FailedBefore []string
	// BaselineOf is the toplevel of that activation, BaselineOver the one that ran before.
	BaselineOf, BaselineOver string
	// Tools leads from a tool's name to its path on the host.
	Tools map[string]string
	// Label is the running system's nixos-version, RebootPending the parts of it that
	// only a reboot brings to run, and Past the generations of the system profile, the
	// oldest first. Only [ObserveAll] asks for these.
	Label         string
	RebootPending []string
	Past          []Generation
}

// repeated are the names of which an observation can have several lines. Every
// other one is said once; a second one would be somebody else's word.
var repeated = map[string]bool{"list": true, "failed": true, "needs-reboot": true, "run": true, "baseline-failed": true, "past": true, "reboot-pending": true}

// Parse reads the output of observe. An answer that is cut short is an error:
// what a half answer leaves out must not pass for "absent".
func Parse(output []byte) (Host, error) {
	h := Host{Tools: map[string]string{}, UID: -1}
	complete := false
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			return Host{}, fmt.Errorf("reading the host's answer: line %q has no value", lines.Text())
		}
		if !repeated[name] && !strings.HasPrefix(name, "tool-") {
			if seen[name] {
				return Host{}, fmt.Errorf("reading the host's answer: %q is said twice", name)
			}
			seen[name] = true
		}
		switch name {
		case "uid", "generation":
			n, err := strconv.Atoi(value)
			if err != nil && name == "uid" {
				return Host{}, fmt.Errorf("reading the host's answer: %s %q is no number", name, value)
			}
			if name == "uid" {
				h.UID = n
			} else {
				// A profile that is no generation link has no number.
				h.Generation = n
			}
		case "machine":
			h.Machine = value
		case "hostname":
			h.HostName = value
		case "boot-id":
			h.BootID = value
		case "machine-id":
			h.MachineID = value
		case "container":
			h.Container = value
		case "nixos":
			h.NixOS = true
		case "systemd":
			h.Systemd = true
		case "running":
			h.Running = value
		case "booted":
			h.Booted = value
		case "profile":
			h.Profile = value
		case "list":
			h.Lists = append(h.Lists, value)
		case "valid":
			h.Valid = true
		case "failed":
			h.FailedUnits = append(h.FailedUnits, value)
		case "units-read":
		case "units-error":
			h.UnitsUnread = value
		case "loader":
			h.Loader = value
		case "boot-entry":
			h.BootEntry = value
		case "lock-holder":
			h.LockHolder = value
		case "interface":
			h.Interface = value
		case "inhibitors":
			h.Inhibitors = value
		case "needs-reboot":
			h.NeedsReboot = append(h.NeedsReboot, value)
		case "run":
			part := strings.SplitN(value, " ", 5)
			if len(part) != 5 {
				return Host{}, fmt.Errorf("reading the host's answer: run %q", value)
			}
			h.Records = append(h.Records, Run{ID: part[0], Name: part[1], State: part[2], ExitStatus: strings.Trim(part[3], "-"), Toplevel: part[4]})
		case "chosen":
			number, path, _ := strings.Cut(value, " ")
			n, err := strconv.Atoi(number)
			if err != nil || !strings.HasPrefix(path, "/") {
				return Host{}, fmt.Errorf("reading the host's answer: chosen generation %q", value)
			}
			h.Chosen, h.ChosenGeneration = path, n
		case "baseline":
			h.Baseline = true
			h.BaselineOf, h.BaselineOver, _ = strings.Cut(value, " ")
		case "baseline-failed":
			h.FailedBefore = append(h.FailedBefore, value)
		case "label":
			h.Label = value
		case "reboot-pending":
			h.RebootPending = append(h.RebootPending, value)
		case "past":
			past, err := parseGeneration(value)
			if err != nil {
				return Host{}, fmt.Errorf("reading the host's answer: %w", err)
			}
			h.Past = append(h.Past, past)
		case "history":
			// It follows an observation that is whole.
		case "observed":
			complete = true
		default:
			tool, ok := strings.CutPrefix(name, "tool-")
			if !ok {
				return Host{}, fmt.Errorf("reading the host's answer: unexpected line %q", lines.Text())
			}
			h.Tools[tool] = value
		}
	}
	if err := lines.Err(); err != nil {
		return Host{}, fmt.Errorf("reading the host's answer: %w", err)
	}
	if !complete {
		return Host{}, fmt.Errorf("reading the host's answer: it ends early, after %d bytes", len(output))
	}
	slices.Sort(h.FailedUnits)
	return h, nil
}

// Living returns the run that brings toplevel to this host right now; nil when none does.
func (h Host) Living(name, toplevel string) *Run {
	for i, r := range h.Records {
		if r.State == "running" && r.Name == name && r.Toplevel == toplevel {
			return &h.Records[i]
		}
	}
	return nil
}

// Unusable says why the host can't be deployed to; empty when it can.
// system is the toplevel's, such as "x86_64-linux"; empty skips that test.
func (h Host) Unusable() string {
	switch {
	case !h.NixOS:
		return "the host is no NixOS: it has no /etc/NIXOS and its os-release says otherwise"
	case h.UID != 0:
		return fmt.Sprintf("the login user has uid %d; switching a system needs root, which elevate = \"sudo\" or \"doas\" in the node's entry gives", h.UID)
	case h.UnitsUnread != "":
		return "systemd does not tell the host's failed units: " + h.UnitsUnread
	case !h.Systemd:
		return "systemd does not run this host (/run/systemd/system is missing)"
	}
	for _, tool := range []string{"nix-store", "nix-env", "systemd-run"} {
		if h.Tools[tool] == "" {
			return tool + " was not found on the host, neither in the system profile nor on the PATH"
		}
	}
	return ""
}

// machines are the kernel's machine names that run each Nix system, besides
// the system's own name. A 64-bit kernel runs the 32-bit systems of its kind.
var machines = map[string][]string{
	"i686-linux":   {"i386", "i486", "i586", "x86_64"},
	"armv6l-linux": {"armv7l", "armv8l", "aarch64"},
	"armv7l-linux": {"armv8l", "aarch64"},
}

// Runs reports whether the host's kernel runs programs of a Nix system.
// An empty system is not tested.
func (h Host) Runs(system string) bool {
	if system == "" || h.Machine == "" {
		return true
	}
	cpu, _, _ := strings.Cut(system, "-")
	return cpu == h.Machine || slices.Contains(machines[system], h.Machine)
}
