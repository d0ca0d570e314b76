package cli

import (
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// noteSameWay notes of nodes that ssh reaches at the same place as a node before them, as
// when an entry was copied and its host forgotten. That it is one machine shows only
// when it answers: who then comes second is refused (wrong-host). Where a command of
// the operator's makes the connection, it may tell nodes apart by what isn't seen here.
func noteSameWay(nodes []plan.Node, identities map[string]*ssh.Identity) {
	first := map[string]string{}
	for _, n := range nodes {
		id := identities[n.Name]
		if id == nil {
			continue
		}
		address, port := strings.ToLower(id.Effective.Get("hostname")), id.Effective.Get("port")
		if command := id.Effective.Get("proxycommand"); command != "" && command != "none" {
			continue
		}
		place := address + " " + port
		for _, hop := range id.Hops {
			place += " " + hop.String()
		}
		if other, taken := first[place]; taken {
			id.Twin = other
			id.Notes = append(id.Notes, fmt.Sprintf("it has the address of node %s, %s port %s", other, address, port))
			continue
		}
		first[place] = n.Name
	}
}
