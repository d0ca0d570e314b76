package report

import (
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/packages"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Planned tells what an apply would do to a node. Nothing was changed for it.
type Planned struct {
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	Host string    `json:"host"`
	User string    `json:"user,omitempty"`
	// Verdict is how an apply would end without changing the host: unchanged, or the
	// failure that is seen already; empty when it would change the host. Meaning and
	// Next are from the verdict's row, Reason is what was seen in this case.
	Verdict verdict.Verdict `json:"verdict,omitempty"`
	Meaning string          `json:"meaning,omitempty"`
	Next    string          `json:"next,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	// Actions are what would be done, in order: "copy", "activate", "boot-entry".
	Actions []Action `json:"actions"`

	// Wanted is the node's toplevel; empty when it does not evaluate. WantedLabel is
	// its nixos-version; empty when it isn't built. Built is whether it is whole in the
	// deployer's store: without that nothing is known of packages and sizes.
	Wanted      string `json:"wanted,omitempty"`
	WantedLabel string `json:"wantedLabel,omitempty"`
	Built       bool   `json:"built"`
	// Now is the host as it was seen; nil when it could not be asked.
	Now *Seen `json:"now,omitempty"`
	// NextGeneration is the number that the wanted system's generation would have; 0
	// where that isn't known.
	NextGeneration int `json:"nextGeneration,omitempty"`

	// Packages and Size are nil where the closures could not be compared, Copy and
	// Space where nothing was asked, as of a host that is as wanted.
	Packages *packages.Changes `json:"packages,omitempty"`
	Size     *SizeChange       `json:"size,omitempty"`
	Copy     *ToCopy           `json:"copy,omitempty"`
	Space    *Space            `json:"space,omitempty"`
	// Units is what a dry activation told; nil without one, and then NoUnits says why
	// if one was asked for.
	Units   *Units `json:"units,omitempty"`
	NoUnits string `json:"noUnits,omitempty"`
	// NeedsReboot are the parts of the wanted system that run only after a reboot.
	NeedsReboot []string `json:"needsReboot"`
	Warnings    []string `json:"warnings"`
	Seconds     float64  `json:"seconds"`
}

// Unbuildable reports whether there is no system to deploy: it does not evaluate or build.
func (p Planned) Unbuildable() bool {
	return p.Verdict == verdict.EvalFailed || p.Verdict == verdict.BuildFailed
}

// Action is a change of a host that a plan foresees.
type Action string

const (
	ActCopy      Action = "copy"
	ActActivate  Action = "activate"
	ActBootEntry Action = "boot-entry"
)

// Seen is what a host was seen to be, as far as a plan rests on it.
type Seen struct {
	State
	// Label is the running system's nixos-version; empty where it was not asked for.
	Label  string `json:"label,omitempty"`
	Booted string `json:"booted,omitempty"`
	// BootID and MachineID are /proc/sys/kernel/random/boot_id and /etc/machine-id.
	BootID    string `json:"bootId,omitempty"`
	MachineID string `json:"machineId,omitempty"`
	// FailedUnits and Lists (what an unfinished switch left) are those of now.
	FailedUnits []string `json:"failedUnits"`
	Lists       []string `json:"lists"`
	LockHolder  string   `json:"lockHolder,omitempty"`
}

// SizeChange is the size of two closures in bytes, unpacked.
type SizeChange struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// ToCopy is what a host lacks of a closure.
type ToCopy struct {
	// Paths is how many the closure has, Missing how many of them the host lacks and
	// NarBytes their size, unpacked.
	Paths    int   `json:"paths"`
	Missing  int   `json:"missing"`
	NarBytes int64 `json:"narBytes"`
	// CachesAsked is whether the host's own caches were asked for those, InCaches how
	// many of them they have: so much need not be sent.
	CachesAsked   bool  `json:"cachesAsked"`
	InCaches      int   `json:"inCaches"`
	InCachesBytes int64 `json:"inCachesBytes"`
}

// Space is what is free on a host and what is needed, in bytes; -1 where the host has
// nothing to say of it.
type Space struct {
	StoreFree  int64 `json:"storeFree"`
	StoreNeeds int64 `json:"storeNeeds"`
	BootFree   int64 `json:"bootFree"`
	BootNeeds  int64 `json:"bootNeeds"`
}

// Units is what an activation would do to units.
type Units struct {
	Stop    []string `json:"stop"`
	Restart []string `json:"restart"`
	Reload  []string `json:"reload"`
	Start   []string `json:"start"`
	// Kept are units that changed and would not be stopped for it.
	Kept []string `json:"kept"`
	// Systemd is whether systemd itself would be started anew.
	Systemd bool `json:"systemd,omitempty"`
}
