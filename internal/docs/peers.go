package docs

import (
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/peers"
)

// parts are the generated parts of files that people write, by name.
var parts = func() map[string]func() string {
	all := map[string]func() string{}
	for _, tool := range []peers.Tool{peers.Colmena, peers.DeployRS, peers.NixosRebuild} {
		for _, kind := range []peers.Kind{peers.Field, peers.Flag, peers.Verb, peers.Variable} {
			all[string(tool)+" "+string(kind)+"s"] = func() string { return peerTable(tool, kind) }
		}
	}
	return all
}()

// theirs is a name as its tool's users know it.
func theirs(r peers.Row) string {
	if r.Kind == peers.Flag {
		return "--" + r.Theirs
	}
	return r.Full()
}

func peerTable(tool peers.Tool, kind peers.Kind) string {
	var rows [][]string
	for _, r := range peers.Of(tool, kind) {
		ours := code(r.Ours)
		if ours == "" {
			ours = "–"
		}
		rows = append(rows, []string{code(theirs(r)), ours, plain(r.Note)})
	}
	return table([]string{string(tool), "deploy-ssh", ""}, rows)
}

// otherTools is everything that is known of other tools.
func otherTools() string {
	var b strings.Builder
	b.WriteString(notice + `# What other tools call things

A field or flag of theirs that is written here is answered with an error that names ours, from
this table. There are guides for those who come [from colmena](../from-colmena.md), [from
deploy-rs](../from-deploy-rs.md) and [from nixos-rebuild](../from-nixos-rebuild.md).
`)
	for _, group := range []struct {
		kind  peers.Kind
		title string
	}{
		{peers.Field, "Fields"}, {peers.Flag, "Flags"}, {peers.Verb, "Verbs"}, {peers.Variable, "Environment variables"},
	} {
		var rows [][]string
		for _, r := range peers.Table() {
			if r.Kind == group.kind {
				rows = append(rows, []string{code(theirs(r)), r.Names(), code(r.Ours), plain(r.Note)})
			}
		}
		b.WriteString("\n## " + group.title + "\n\n" + table([]string{"theirs", "of", "ours", ""}, rows))
	}
	return b.String()
}
