// Package report has the records of a run and the handlers that show them.
//
// The work emits records and never prints. Each [Record] has exactly one of its
// fields set. Progress records are decoration: leave them all out and the
// meaning of the stream is the same.
package report

import (
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// Protocol is the version of the record stream; it grows when a field changes
// its meaning, not when one is added.
const Protocol = 1

// Record is one line of the event stream.
type Record struct {
	// Run opens the stream.
	Run *Run `json:"run,omitempty"`
	// Plan follows once the nodes are known.
	Plan *Plan `json:"plan,omitempty"`
	// Announce opens a node.
	Announce *Announce `json:"announce,omitempty"`
	// Phase is one step that ended, of a node or of the run.
	Phase *Phase `json:"phase,omitempty"`
	// Progress is something that goes on.
	Progress *Progress `json:"progress,omitempty"`
	// Result closes a node.
	Result *Result `json:"result,omitempty"`
	// Status is what a host was seen to be, where that is all that was asked.
	Status *Status `json:"status,omitempty"`
	// Output is what a command printed that was asked for by itself.
	Output *Output `json:"output,omitempty"`
	// Exec closes a node where a command was all that was asked.
	Exec *Exec `json:"exec,omitempty"`
	// Planned is what an apply would do to a node, where that is all that was asked.
	Planned *Planned `json:"planned,omitempty"`
	// Summary closes the stream.
	Summary *Summary `json:"summary,omitempty"`
}

// Run says what was started.
type Run struct {
	Protocol int       `json:"protocol"`
	Version  string    `json:"version"`
	Time     time.Time `json:"time"`
	// Source is the flake reference of the node map, or the environment variable that
	// has the nodes where there is no flake.
	Source string `json:"source"`
	// Goal is how far an apply or a rollback goes: build, push, dry-activate, test, boot or
	// switch; empty for verbs that have no goal.
	Goal string `json:"goal,omitempty"`
}

// Plan says what will be done, in order.
type Plan struct {
	Nodes []string `json:"nodes"`
	// Notes are true things about the map, such as where its order comes from.
	Notes []string `json:"notes,omitempty"`
}

// Announce says that a node's turn has come.
type Announce struct {
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	// Index counts from 1 to Total, in list order.
	Index int `json:"index"`
	Total int `json:"total"`
	// Host and User are where the deploy connects to.
	Host     string `json:"host"`
	User     string `json:"user"`
	Toplevel string `json:"toplevel"`
	// Rollback says that the host goes to an earlier generation of its own;
	// Toplevel is empty then.
	Rollback bool `json:"rollback,omitempty"`
	// Combined says that Toplevel is the one system of all nodes of the map.
	Combined bool `json:"combined,omitempty"`
}

// PhaseName names a step of the deploy.
type PhaseName string

const (
	Evaluate    PhaseName = "evaluate"
	Build       PhaseName = "build"
	Connect     PhaseName = "connect"
	Probe       PhaseName = "probe"
	Copy        PhaseName = "copy"
	DryActivate PhaseName = "dry-activate"
	Switch      PhaseName = "switch"
	Finalize    PhaseName = "finalize"
	Reboot      PhaseName = "reboot"
	// Pause is of the whole run, between nodes.
	Pause PhaseName = "pause"
)

// Phase says how a step ended.
type Phase struct {
	Time time.Time `json:"time"`
	// Node is empty for a step of the whole run.
	Node string    `json:"node,omitempty"`
	Name PhaseName `json:"name"`
	OK   bool      `json:"ok"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// Detail is what came of it, or why it failed.
	Detail string `json:"detail,omitempty"`
	// Notes are true things that changed nothing.
	Notes []string `json:"notes,omitempty"`
	// Cache says of an evaluation what became of it in the cache: "hit" when nothing was
	// evaluated, "miss", or "off: " and why.
	Cache string `json:"cache,omitempty"`
	// Copied is what was sent, in a copy phase that had anything to send.
	Copied *Copied `json:"copied,omitempty"`
}

// Copied counts a copy.
type Copied struct {
	// By is what moved the paths: "cache", the deployer's own, "direct", one command with
	// all of the little that was missing, "via cache", the operator's, or "nix copy".
	By string `json:"by"`
	// Why is why it was nix copy; else empty.
	Why string `json:"why,omitempty"`
	// Paths is how many the closure has, Missing how many of them the host lacked;
	// FromHere and FromCaches are where those came from, unknown with nix copy.
	Paths      int `json:"paths"`
	Missing    int `json:"missing"`
	FromHere   int `json:"fromHere"`
	FromCaches int `json:"fromCaches"`
	// MissingBytes is the size of what was missing, NarBytes of what was sent from
	// here, both unpacked; WireBytes is what was sent for that.
	MissingBytes int64 `json:"missingBytes"`
	NarBytes     int64 `json:"narBytes"`
	WireBytes    int64 `json:"wireBytes"`
	// Tries is how often it was begun.
	Tries int `json:"tries"`
}

// Progress is a line of a child or of the host, or something waited for.
type Progress struct {
	Time  time.Time `json:"time"`
	Node  string    `json:"node,omitempty"`
	Phase PhaseName `json:"phase"`
	Text  string    `json:"text"`
	// FromHost is set for lines that the host printed.
	FromHost bool `json:"fromHost,omitempty"`
}

// State is what a host was seen to run and boot.
type State struct {
	// Generation is the number of the system profile's generation; 0 when unknown.
	Generation int    `json:"generation,omitempty"`
	Running    string `json:"running,omitempty"`
	Profile    string `json:"profile,omitempty"`
	// BootEntry is the toplevel that the default boot entry leads to;
	// empty when it could not be read.
	BootEntry string `json:"bootEntry,omitempty"`
}

// Result is the outcome of one node.
type Result struct {
	Time    time.Time       `json:"time"`
	Node    string          `json:"node"`
	Verdict verdict.Verdict `json:"verdict"`
	Class   verdict.Class   `json:"class"`
	// HostChanged, Meaning and Next are from the verdict's row.
	HostChanged verdict.Changed `json:"hostChanged"`
	Meaning     string          `json:"meaning"`
	Next        string          `json:"next,omitempty"`
	// Reason is what was seen in this case.
	Reason string   `json:"reason,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// Toplevel is the wanted system; empty when it did not evaluate.
	Toplevel string `json:"toplevel,omitempty"`
	// Combined says that it is the one system of all nodes of the map.
	Combined bool `json:"combined,omitempty"`
	// From and To are what was seen before and after; nil when nothing was.
	From *State `json:"from,omitempty"`
	To   *State `json:"to,omitempty"`
	// Seconds is how long its phases took together, those before its turn included.
	Seconds float64 `json:"seconds"`
}

// Status tells a host's state beside the wanted one.
type Status struct {
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	// Verdict says why the host could not be asked; empty when it answered.
	Verdict verdict.Verdict `json:"verdict,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	// Wanted is the node's toplevel; empty when it was not asked for or does not evaluate.
	Wanted string `json:"wanted,omitempty"`
	// Drift says in what the host differs from the wanted system; empty when it doesn't.
	Drift []string `json:"drift"`
	State
	Booted      string   `json:"booted,omitempty"`
	Container   string   `json:"container,omitempty"`
	FailedUnits []string `json:"failedUnits"`
	// Lists are what an unfinished switch left to do.
	Lists      []string `json:"lists"`
	LockHolder string   `json:"lockHolder,omitempty"`
	// NeedsReboot are the parts of the running system that run only after a reboot.
	NeedsReboot []string `json:"needsReboot"`
	// Runs are deploy-ssh's own records on the host since its boot, each
	// "ID NAME: how it ended".
	Runs []string `json:"runs"`
	// LastRun is the last of these; nil when there is none.
	LastRun *HostRun `json:"lastRun,omitempty"`
	// Label is the running system's nixos-version; empty when it has none.
	Label string `json:"label,omitempty"`
	// Generations are those of the system profile, the oldest first.
	Generations []Generation `json:"generations"`
	Seconds     float64      `json:"seconds"`
}

// HostRun is deploy-ssh's record of a run on a host.
type HostRun struct {
	// ID begins with the time of the deploy, Name is test, boot, dry-activate or back.
	ID   string `json:"id"`
	Name string `json:"name"`
	// State is running, ended or cut; ExitStatus is systemd's word for an end.
	State      string `json:"state"`
	ExitStatus string `json:"exitStatus,omitempty"`
	System     string `json:"system,omitempty"`
}

// Generation is a generation of a host's system profile.
type Generation struct {
	Number int       `json:"number"`
	Time   time.Time `json:"time"`
	System string    `json:"system"`
	Label  string    `json:"label,omitempty"`
}

// Summary closes a run.
type Summary struct {
	Time        time.Time `json:"time"`
	ExitCode    int       `json:"exitCode"`
	Interrupted bool      `json:"interrupted,omitempty"`
	// Failed names the nodes that did not come as far as was asked, in list order.
	Failed []string `json:"failed"`
	// FailedBy has the same nodes by what they came to; see [Alike].
	FailedBy []Group `json:"failedBy,omitempty"`
	Seconds  float64 `json:"seconds"`
}

// Handler receives the records of a run, one at a time and in order.
type Handler interface {
	Handle(Record) error
}
