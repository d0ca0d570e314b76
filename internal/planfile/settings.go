package planfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
)

// Settings are a node's settings as they were layered, without where they came from.
type Settings struct {
	Host        string       `json:"host"`
	User        string       `json:"user"`
	Key         string       `json:"key"`
	HostKeys    []string     `json:"hostKeys"`
	Options     []string     `json:"options"`
	Elevate     string       `json:"elevate"`
	Expect      flake.Expect `json:"expect"`
	IgnoreUnits []string     `json:"ignoreUnits"`
}

// SettingsOf are those of a node.
func SettingsOf(n plan.Node) Settings {
	return Settings{
		Host: n.SSH.Host.V, User: n.SSH.User.V, Key: n.SSH.Key.V, HostKeys: n.SSH.HostKeys.V, Options: n.SSH.Options.V,
		Elevate: n.Elevate.V, Expect: n.Expect, IgnoreUnits: n.IgnoreUnits,
	}
}

// Now is the map as it is when a plan is to be applied.
type Now struct {
	// Nodes are the planned nodes that the map still has, in its order.
	Nodes []plan.Node
	// Others are the names of all other nodes of the map.
	Others []string
	// ClientConfig is as in [Plan].
	ClientConfig string
}

// Changes tells what of the map and the settings is other than when the plan was made,
// a line for each; nothing when all is the same.
func (p Plan) Changes(now Now) []string {
	var changes []string
	is := map[string]plan.Node{}
	var order, wanted []string
	for _, n := range now.Nodes {
		is[n.Name] = n
		order = append(order, n.Name)
	}
	for _, n := range p.Nodes {
		node, ok := is[n.Name]
		if !ok {
			changes = append(changes, "node "+n.Name+" is gone")
			continue
		}
		wanted = append(wanted, n.Name)
		for _, c := range n.Settings.changes(SettingsOf(node)) {
			changes = append(changes, "node "+n.Name+": "+c)
		}
	}
	if p.Source.Whole && len(now.Others) > 0 {
		changes = append(changes, "new: "+strings.Join(now.Others, ", "))
	}
	if !slices.Equal(order, wanted) {
		changes = append(changes, fmt.Sprintf("the nodes' order is %s, and was %s", strings.Join(order, ", "), strings.Join(wanted, ", ")))
	}
	if p.ClientConfig != now.ClientConfig {
		changes = append(changes, "the ssh client configuration is another one")
	}
	return changes
}

func (s Settings) changes(now Settings) []string {
	var changes []string
	text := func(field, was, is string) {
		if was != is {
			changes = append(changes, fmt.Sprintf("%s is %s, and was %s", field, shown(is), shown(was)))
		}
	}
	list := func(field string, was, is []string) {
		if !slices.Equal(was, is) {
			text(field, strings.Join(was, ", "), strings.Join(is, ", "))
		}
	}
	text("host", s.Host, now.Host)
	text("user", s.User, now.User)
	text("key", s.Key, now.Key)
	list("hostKey", s.HostKeys, now.HostKeys)
	list("options", s.Options, now.Options)
	text("elevate", s.Elevate, now.Elevate)
	text("expect.machineId", s.Expect.MachineID, now.Expect.MachineID)
	text("expect.hostName", s.Expect.HostName, now.Expect.HostName)
	list("ignoreUnits", s.IgnoreUnits, now.IgnoreUnits)
	return changes
}

func shown(value string) string {
	if value == "" {
		return "not set"
	}
	return fmt.Sprintf("%q", value)
}
