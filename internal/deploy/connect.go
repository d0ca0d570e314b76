package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// slowLogin is how long a host may take from the first packet to its first answer
// before a note says so. A logind that hangs takes 25 s or two minutes.
const slowLogin = 10 * time.Second

// machines remembers which node answered with which machine id. Hosts are looked at
// side by side, so of two nodes that lead to one machine the earlier one of the list
// has it, unless the other has begun already.
type machines struct {
	mu    sync.Mutex
	taken map[string]string // by the nodes that go on there
	first map[string]seat   // the first of the list among those that answered
}

// seat is a node and its place in the list.
type seat struct {
	node  string
	place int
}

// saw remembers that a node's host answered with this machine id.
func (m *machines) saw(id, node string, place int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if first, ok := m.first[id]; !ok || place < first.place {
		if m.first == nil {
			m.first = map[string]seat{}
		}
		m.first[id] = seat{node, place}
	}
}

// twin is the other node that has the machine with this id; empty when none does, and
// then this node has it from now on.
func (m *machines) twin(id, node string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, ok := m.taken[id]; ok {
		if other == node {
			return ""
		}
		return other
	}
	if first, ok := m.first[id]; ok && first.node != node {
		return first.node
	}
	if m.taken == nil {
		m.taken = map[string]string{}
	}
	m.taken[id] = node
	return ""
}

func (d *deployment) identity() *ssh.Identity { return d.fleet.Identities[d.node.Name] }

func (d *deployment) connect(ctx context.Context) step {
	if d.fleet.Rollback == nil && !d.buildsThere() {
		system, err := closure.Inspect(d.node.Toplevel)
		if err != nil {
			return end(verdict.Refused, err.Error())
		}
		d.system = system
	}
	return d.reach(ctx)
}

// reach connects to the host, whatever system it is to get.
func (d *deployment) reach(ctx context.Context) step {
	if d.fleet.Open != nil {
		transport, err := d.fleet.Open(ctx, d.node)
		if err != nil {
			return d.unreached(ctx, err)
		}
		d.transport = transport
		return step{detail: "connected"}
	}
	id := d.identity()
	if s := d.unpinned(); s.end != nil {
		return s
	}
	conn, err := id.Connect(ctx)
	if err != nil {
		return d.unreached(ctx, err)
	}
	d.login = conn
	d.transport = sshTransport{Conn: conn, copier: d.fleet.Copier, limit: d.fleet.Limits.Switch}
	return step{detail: "connected, host key " + id.Trust(), notes: append(id.Notes, conn.Notes...)}
}

// unpinned ends a node whose host key is not pinned where pins are required.
func (d *deployment) unpinned() step {
	if id := d.identity(); d.fleet.RequirePins && (!id.Pinned || len(id.Weakened) > 0) {
		return end(verdict.Unpinned, "host key "+id.Trust())
	}
	return step{}
}

// unreached judges an error of the way to the host, before anything was changed there.
func (d *deployment) unreached(ctx context.Context, err error) step {
	if ctx.Err() != nil {
		return end(verdict.NotStarted, "interrupted before the host was changed")
	}
	var way *ssh.Error
	if errors.As(err, &way) {
		switch way.Kind {
		case ssh.HostKeyRefused:
			return end(verdict.HostKeyRefused, err.Error())
		case ssh.LoginRefused:
			return end(verdict.LoginRefused, err.Error())
		case ssh.ElevationRefused:
			return end(verdict.ElevationRefused, err.Error())
		case ssh.Noise:
			return end(verdict.Unusable, err.Error())
		}
	}
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return end(verdict.Unusable, err.Error())
	}
	return end(verdict.Unreachable, err.Error())
}

// met notes who answered, so that other nodes can be compared with it.
func (d *deployment) met(p performed) performed {
	if d.before != nil && d.host.MachineID != "" && wrongHost(d.host, d.node.Expect) == "" {
		d.fleet.machines.saw(d.host.MachineID, d.node.Name, d.place.index)
	}
	return p
}

// known judges the host that a probe has seen: one that turns out to be another than
// meant ends the deploy, whatever the probe made of it, before anything is written.
func (d *deployment) known(p performed) performed {
	if d.before == nil {
		return p
	}
	if why := d.stranger(); why != "" {
		p.step = end(verdict.WrongHost, why)
		return p
	}
	if why := d.moved(p.step); why != "" {
		p.step = end(verdict.Stale, why)
		return p
	}
	p.step = d.slow(p.step)
	return p
}

// stranger says why the host that answered is not the one that the node means; empty
// when it is.
func (d *deployment) stranger() string {
	if why := wrongHost(d.host, d.node.Expect); why != "" {
		// Its machine id is left out of account: it belongs to another node, whose
		// fault this is not.
		return why
	}
	if id := d.host.MachineID; id != "" {
		if other := d.fleet.machines.twin(id, d.node.Name); other != "" {
			return twin(id, other)
		}
	}
	return ""
}

// twin says that two nodes have one machine id.
func twin(id, other string) string {
	return fmt.Sprintf("it has the machine id %s, and so had the host of node %s in this run: two nodes lead to one machine, or one is a copy of the other", id, other)
}

// slow adds a note where the login took long.
func (d *deployment) slow(s step) step {
	if d.login != nil {
		if took := d.login.Login + d.login.Answer(); took >= slowLogin {
			s.notes = append(s.notes, fmt.Sprintf("slow login: %.0f s until the host's first answer", took.Seconds()))
		}
	}
	return s
}

// wrongHost says what of a host is not as expected; empty when nothing is.
func wrongHost(h facts.Host, want flake.Expect) string {
	var wrong []string
	if want.MachineID != "" && h.MachineID != want.MachineID {
		wrong = append(wrong, fmt.Sprintf("its machine id is %s, expected %s", orNothing(h.MachineID), want.MachineID))
	}
	if want.HostName != "" && h.HostName != want.HostName {
		wrong = append(wrong, fmt.Sprintf("its host name is %s, expected %s", orNothing(h.HostName), want.HostName))
	}
	return strings.Join(wrong, "; ")
}

func orNothing(s string) string {
	if s == "" {
		return "not to be read"
	}
	return s
}

// emit sends a record out. Every record of a node whose pin is weakened says so (FR-015).
func (d *deployment) emit(r report.Record) {
	if id := d.identity(); id != nil && len(id.Weakened) > 0 {
		note := "the pinned host key is weakened by " + strings.Join(id.Weakened, ", ")
		if r.Phase != nil {
			r.Phase.Notes = append(r.Phase.Notes[:len(r.Phase.Notes):len(r.Phase.Notes)], note)
		}
		if r.Exec != nil {
			r.Exec.Notes = append(r.Exec.Notes[:len(r.Exec.Notes):len(r.Exec.Notes)], note)
		}
		if r.Result != nil {
			r.Result.Notes = append(r.Result.Notes[:len(r.Result.Notes):len(r.Result.Notes)], note)
		}
	}
	d.records.pass(d.fleet, r)
}
