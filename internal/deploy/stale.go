package deploy

import (
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// moved says, of a node that is deployed by a plan made before, in what its host has
// moved since; empty when it hasn't, or there is no such plan.
func (d *deployment) moved(probed step) string {
	if d.fleet.Planned == nil {
		return ""
	}
	then, ok := d.fleet.Planned[d.node.Name]
	if !ok {
		then.Missed = "the node is not in it"
	}
	// A host that is as wanted by now is left as it is, whoever brought it there: so a
	// plan that was applied in part can be applied again. It must be the same machine.
	if probed.end != nil && probed.end.Verdict == verdict.Unchanged && then.MachineID == d.host.MachineID {
		return ""
	}
	return verdict.Moved(then, d.host.MachineID, d.host.Host)
}
