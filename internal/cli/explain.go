package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/deploy-ssh/deploy-ssh/internal/flake"
	"github.com/deploy-ssh/deploy-ssh/internal/hostkeys"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// explanation is all that is known of the way to a node before it is gone.
type explanation struct {
	Node string `json:"node"`
	// Settings are the node's values, each with its origin.
	Settings settings.Resolved `json:"settings"`
	// ClientConfig is the operator's client configuration and its origin.
	ClientConfig settings.Value[string] `json:"clientConfig"`
	// Address, Port and User are what ssh makes of the settings.
	Address string `json:"address"`
	Port    string `json:"port"`
	User    string `json:"user"`
	// Jumps are the jump hosts, the first one reached first; ProxyCommand is the
	// command in their place, where one is set.
	Jumps        []string `json:"jumps"`
	ProxyCommand string   `json:"proxyCommand,omitempty"`
	// HostKey says what the node's host key is checked against, Weakened by what a
	// pin is weakened, KnownHosts are the files read, SavedKeys the file of first uses.
	HostKey    string   `json:"hostKey"`
	Weakened   []string `json:"weakened"`
	KnownHosts []string `json:"knownHosts"`
	SavedKeys  string   `json:"savedKeys,omitempty"`
	Notes      []string `json:"notes"`
	// Config is the generated ssh_config.
	Config string `json:"config"`
}

func explain(n plan.Node, config settings.Value[string], id *ssh.Identity) explanation {
	e := explanation{
		Node: n.Name, Settings: n.SSH, ClientConfig: config,
		Address: id.Effective.Get("hostname"), Port: id.Effective.Get("port"), User: id.Effective.Get("user"),
		Jumps: []string{}, ProxyCommand: id.Effective.Get("proxycommand"),
		HostKey: id.Trust(), Weakened: orEmpty(id.Weakened), KnownHosts: orEmpty(id.KnownHosts), SavedKeys: id.Saved,
		Notes: orEmpty(id.Notes), Config: id.Config,
	}
	for _, h := range id.Hops {
		e.Jumps = append(e.Jumps, h.String())
	}
	return e
}

// orEmpty makes a list that JSON shows as [].
func orEmpty(list []string) []string { return append([]string{}, list...) }

func newExplain(p Process) *cobra.Command {
	f := &mapFlags{}
	cmd := &cobra.Command{
		Use:   "explain FLAKE#NODES [NODE...] [flags] [-- NIX ARGS]",
		Short: "Show where each setting comes from; contact nobody",
		Args:  refAndNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withIdentities(cmd, p, args, true, func(m loaded, identities map[string]*ssh.Identity) error {
				all := explanations(m, identities)
				if f.json {
					return printJSON(p.Stdout, all)
				}
				for i, e := range all {
					if i > 0 {
						fmt.Fprintln(p.Stdout)
					}
					if err := e.print(p.Stdout); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	f.add(cmd.Flags(), "print the explanation as JSON")
	f.addSystems(cmd.Flags())
	return cmd
}

func newCheck(p Process) *cobra.Command {
	f := &mapFlags{}
	cmd := &cobra.Command{
		Use:   "check FLAKE#NODES [NODE...] [flags] [-- NIX ARGS]",
		Short: "Check the map, key files and ssh's view of them; contact nobody",
		Args:  refAndNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withIdentities(cmd, p, args, false, func(m loaded, identities map[string]*ssh.Identity) error {
				all := explanations(m, identities)
				if f.json {
					return printJSON(p.Stdout, all)
				}
				return showChecked(p, all)
			})
		},
	}
	f.add(cmd.Flags(), "print what is known of each way as JSON, as explain does")
	f.addSystems(cmd.Flags())
	return cmd
}

// showChecked tells of ways to nodes in which nothing is wrong.
func showChecked(p Process, all []explanation) error {
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tLOGIN\tPORT\tVIA\tHOST KEY")
	notes := 0
	for _, e := range all {
		fmt.Fprintf(table, "%s\t%s@%s\t%s\t%s\t%s\n", e.Node, e.User, e.Address, e.Port, or(strings.Join(e.Jumps, ", "), "-"), e.HostKey)
		for _, note := range e.Notes {
			say(p.Stderr, "%s: note: %s", e.Node, report.Printable(note))
			notes++
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	end := counted(len(all), "node") + " checked, nothing wrong"
	if notes > 0 {
		end += ", " + counted(notes, "note")
	}
	_, err := fmt.Fprintf(p.Stdout, "\n%s; no host was contacted\n", end)
	return err
}

// counted is a number of things of a kind.
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func newHostKeys(p Process) *cobra.Command {
	f := &mapFlags{}
	cmd := &cobra.Command{
		Use:   "hostkeys FLAKE#NODES [NODE...] [flags] [-- NIX ARGS]",
		Short: "Print the host keys that nodes show, to paste; log in nowhere",
		Args:  refAndNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withIdentities(cmd, p, args, true, func(m loaded, identities map[string]*ssh.Identity) error {
				return showHostKeys(cmd.Context(), p, f.json, m, identities)
			})
		},
	}
	f.add(cmd.Flags(), "print the keys in the form of "+settings.KeyNodes)
	return cmd
}

// showHostKeys prints the keys of one node after the other. A node that shows
// none is named, and the others are shown all the same.
func showHostKeys(ctx context.Context, p Process, asJSON bool, m loaded, identities map[string]*ssh.Identity) error {
	type entry struct {
		HostKey string `json:"hostKey"`
	}
	document := struct {
		Nodes map[string]entry `json:"nodes"`
	}{map[string]entry{}}
	failed := false
	for _, n := range m.work.Nodes {
		id := identities[n.Name]
		keys, err := id.ShowHostKeys(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = true
			say(p.Stderr, "%s: %s", n.Name, report.Printable(err.Error()))
			if len(keys) == 0 {
				continue
			}
		}
		document.Nodes[n.Name] = entry{strings.Join(keys, "\n")}
		if !asJSON {
			if _, err := io.WriteString(p.Stdout, pinEntry(n, id, keys)); err != nil {
				return err
			}
		}
	}
	if asJSON {
		if err := printJSON(p.Stdout, document); err != nil {
			return err
		}
	}
	if failed {
		return exitCode(1)
	}
	return nil
}

// pinEntry is a node's keys as a line of its entry in the node map.
func pinEntry(n plan.Node, id *ssh.Identity, keys []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, known to ssh as %s. Compare with what the host itself has in /etc/ssh:\n", n.Name, id.Effective.KnownAs())
	for _, key := range keys {
		pinned := ""
		if id.Pinned {
			pinned = "  (not pinned)"
			for _, pin := range id.Settings.HostKeys {
				if pin == key {
					pinned = "  (pinned)"
				}
			}
		}
		fmt.Fprintf(&b, "#   %s%s\n", hostkeys.Fingerprint(key), pinned)
	}
	b.WriteString("ssh.hostKey = ''\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "  %s\n", key)
	}
	b.WriteString("'';\n")
	return b.String()
}

// withIdentities reads the map and prepares the way to each node that args name,
// or to all of them.
func (f *mapFlags) withIdentities(cmd *cobra.Command, p Process, args []string, settingsOnly bool, do func(loaded, map[string]*ssh.Identity) error) error {
	ctx := cmd.Context()
	if err := f.check(); err != nil {
		return err
	}
	own, nixArgs := args, []string(nil)
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		own, nixArgs = args[:dash], args[dash:]
	}
	if len(own) == 0 {
		own = []string{""} // the environment's nodes
	}
	r := flake.Request{Ref: own[0], Args: nixArgs, SettingsOnly: settingsOnly}
	if len(own) > 1 {
		var err error
		if r.Include, err = flake.ParseSelectors(strings.Join(own[1:], ",")); err != nil {
			return usageError{err}
		}
	}
	// The records of the evaluation are for standard error alone here.
	out := &output{handler: &report.Text{Out: io.Discard, Err: p.Stderr, NoProgress: f.noProgress}}
	m, err := f.load(ctx, p, out, r)
	if err != nil {
		return err
	}
	dir, err := ssh.NewRunDir(p.getenv)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	identities, err := f.identities.prepare(ctx, p, dir, m.work.Nodes, m.clientConfig)
	problems := unevaluated(m.work.Nodes)
	if err != nil {
		problems = append(problems, err.Error())
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return do(m, identities)
}

func unevaluated(nodes []plan.Node) []string {
	var problems []string
	for _, n := range nodes {
		if n.EvalError != "" {
			problems = append(problems, fmt.Sprintf("node %s does not evaluate: %s", n.Name, n.EvalError))
		}
	}
	return problems
}

func explanations(m loaded, identities map[string]*ssh.Identity) []explanation {
	all := []explanation{}
	for _, n := range m.work.Nodes {
		config := m.work.Config
		config.V = m.clientConfig
		all = append(all, explain(n, config, identities[n.Name]))
	}
	return all
}

func (e explanation) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", e.Node)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	s := e.Settings
	row := func(name, value, origin string) {
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", name, report.Printable(value), origin)
	}
	row("host", s.Host.V, s.Host.Origin)
	row("user", s.User.V, s.User.Origin)
	row("key", s.Key.V, s.Key.Origin)
	if len(s.HostKeys.V) == 0 {
		row("hostKey", "", s.HostKeys.Origin)
	}
	for _, key := range s.HostKeys.V {
		row("hostKey", hostkeys.Fingerprint(key), s.HostKeys.Origin)
	}
	if len(s.Options.V) == 0 {
		row("options", "", s.Options.Origin)
	}
	for i, item := range s.Options.V {
		row(fmt.Sprintf("options[%d]", i), item, s.Options.Origin)
	}
	if e.ClientConfig.V != "" {
		row("client configuration", e.ClientConfig.V, e.ClientConfig.Origin)
	}
	_ = table.Flush()
	fmt.Fprintf(&b, "  ssh connects to %s port %s as %s%s\n", e.Address, e.Port, e.User, e.via())
	fmt.Fprintf(&b, "  host key %s\n", e.HostKey)
	if len(e.KnownHosts) > 0 {
		fmt.Fprintf(&b, "  known hosts: %s\n", strings.Join(e.KnownHosts, ", "))
	}
	if e.SavedKeys != "" {
		fmt.Fprintf(&b, "  first keys, those of jump hosts too, are saved in %s\n", e.SavedKeys)
	}
	for _, note := range e.Notes {
		fmt.Fprintf(&b, "  note: %s\n", note)
	}
	fmt.Fprintf(&b, "\n  %s\n", strings.ReplaceAll(strings.TrimRight(e.Config, "\n"), "\n", "\n  "))
	_, err := io.WriteString(w, b.String())
	return err
}

func (e explanation) via() string {
	switch {
	case len(e.Jumps) > 0:
		return " via " + strings.Join(e.Jumps, ", then ")
	case e.ProxyCommand != "" && e.ProxyCommand != "none":
		return " over the command " + e.ProxyCommand
	}
	return ""
}

// refAndNodes takes a flake reference and any number of nodes; what follows `--` is Nix's.
func refAndNodes(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if len(args) == 0 && withoutFlake(cmd) {
		return nil
	}
	if len(args) == 0 || dash == 0 {
		return usageError{fmt.Errorf("a flake reference with the node map's attribute is wanted, such as .#nodes")}
	}
	if dash < 0 {
		dash = len(args)
	}
	return checkRef(cmd, args[0], args[dash:])
}

func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
