package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
	"github.com/deploy-ssh/deploy-ssh/internal/hostkeys"
)

// Identity is the one way to a node: the configuration that every connection to it
// is made with, and what ssh makes of it. It is made by [Client.Prepare], which
// contacts nobody.
type Identity struct {
	// Name is the node's name.
	Name     string
	Settings Settings
	// Config is the generated ssh_config, with which the node is Settings.Host.
	Config string
	// Effective is what ssh makes of it.
	Effective Effective
	// Hops are the jump hosts, the first one reached first.
	Hops []Hop
	// Pinned is whether the node has host keys of its own.
	Pinned bool
	// Weakened tells by what the pin is weakened; empty when it holds or there is none.
	Weakened []string
	// KnownHosts are the files that the node's key is checked against. A first key
	// is saved in the first of them, unless the node is pinned.
	KnownHosts []string
	// Saved is the file of first uses that the deploy keeps; empty when no place
	// for it is writable, and ssh's own is used.
	Saved string
	// Known is whether those files have a key for the node already.
	Known bool
	// Notes are true things that an operator wants to know of the way.
	Notes []string
	// Twin is an earlier node that the same way leads to, empty when none is known. That
	// it is one machine shows only when it answers.
	Twin string

	client  *Client
	dir     string
	files   files
	trusted trusted
	// unsaved are the names (see [Effective.KnownAs]) without a saved key so far,
	// with the entries of the user's own files that will be taken over.
	unsaved []unsavedName
}

// unsavedName is a host on the way whose key will be saved.
type unsavedName struct {
	name    string
	files   []string // where it will be
	entries []hostkeys.Entry
}

// Problem is a part of a node's settings that can't be used.
type Problem struct {
	// Field is "options", "key", "user", "host" or, for the configuration as a whole, empty.
	Field string
	// Index is the item of options.
	Index int
	Text  string
}

// SettingsError is all that is wrong with a node's settings. No host was contacted.
type SettingsError struct{ Problems []Problem }

func (e *SettingsError) Error() string {
	var lines []string
	for _, p := range e.Problems {
		lines = append(lines, p.Text)
	}
	return strings.Join(lines, "\n")
}

// Trust says what the node's host key is checked against, after "host key".
func (id *Identity) Trust() string {
	file := "ssh's own known_hosts"
	if len(id.KnownHosts) > 0 {
		file = id.KnownHosts[0]
	}
	switch check := id.Effective.Get("stricthostkeychecking"); {
	case id.Pinned && len(id.Weakened) == 0:
		return "as pinned"
	case id.Pinned:
		return "pinned, but the pin is weakened by " + strings.Join(id.Weakened, ", ")
	case check == "false" || check == "no" || check == "off":
		return fmt.Sprintf("not checked: StrictHostKeyChecking no (%s)", setter(id.Settings, "StrictHostKeyChecking"))
	case id.Known:
		return "as saved in " + file
	case check == "true" || check == "yes":
		return "as in " + file
	}
	return "trusted on first use, saved in " + file
}

// Prepare writes the node's configuration and asks ssh what it makes of it. name
// is the node's name, used in errors. A [*SettingsError] has everything that is
// wrong with the settings.
func (c *Client) Prepare(ctx context.Context, name string, s Settings) (*Identity, error) {
	// Names can be long and control sockets' paths can't be, so chance makes the short name.
	dir, err := os.MkdirTemp(c.Dir.Path, "n")
	if err != nil {
		return nil, fmt.Errorf("preparing the connection of %s: %w", name, err)
	}
	id := &Identity{Name: name, Settings: s, Pinned: len(s.HostKeys) > 0, client: c, dir: dir}
	if err := id.write(ctx); err != nil {
		return nil, fmt.Errorf("preparing the connection of %s: %w", name, err)
	}
	var problems []Problem
	id.Effective, err = c.ask(ctx, "-F", id.file("config"), "--", s.Host)
	if err != nil {
		if problems = id.refusedOptions(ctx, err); problems == nil {
			return nil, fmt.Errorf("preparing the connection of %s: %w", name, err)
		}
	}
	for i, item := range s.Options {
		// The one keyword of which ssh refuses more on its command line than in a file:
		// a user with characters that a shell would act on, in a ProxyCommand's %r.
		if strings.EqualFold(optionKey(item), "User") && err == nil {
			problems = append(problems, id.refusedOption(ctx, i)...)
		}
	}
	if s.Key != "" {
		if err := c.checkKeyOnce(ctx, c.absolute(s.Key), c.agentSocket(id.Effective)); err != nil {
			problems = append(problems, Problem{Field: "key", Text: err.Error()})
		}
	}
	problems = append(problems, id.namedFiles(ctx)...)
	if len(problems) > 0 {
		return nil, &SettingsError{problems}
	}
	if user := id.Effective.Get("user"); user != s.User && s.User != "" && !hasOption(s, "User") {
		problems = append(problems, Problem{Field: "user", Text: fmt.Sprintf("%q: ssh would log in as %q", s.User, user)})
	}
	hopProblems, err := id.hops(ctx)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection of %s: %w", name, err)
	}
	problems = append(problems, hopProblems...)
	if len(problems) > 0 {
		return nil, &SettingsError{problems}
	}
	if err := id.knownHosts(ctx); err != nil {
		return nil, fmt.Errorf("preparing the connection of %s: %w", name, err)
	}
	if id.Pinned {
		id.Weakened = weakened(id.Effective, s, id.files.pin)
	}
	if to := id.Effective.Get("hostname"); !strings.EqualFold(to, s.Host) {
		id.Notes = append(id.Notes, fmt.Sprintf("%s leads to %s (HostName, %s)", s.Host, to, setterOf(s, "HostName")))
	}
	if id.Effective.Get("serveraliveinterval") == "0" {
		id.Notes = append(id.Notes, fmt.Sprintf("the keepalive is off (ServerAliveInterval 0, %s): a line that dies in silence is not noticed", setterOf(s, "ServerAliveInterval")))
	}
	return id, nil
}

// setterOf is [setter] for a keyword that the implicit files may have set, too.
func setterOf(s Settings, keyword string) string {
	if !hasOption(s, keyword) && s.ClientConfig == "" {
		return "client configuration ~/.ssh/config or /etc/ssh/ssh_config"
	}
	return setter(s, keyword)
}

func (id *Identity) file(name string) string { return filepath.Join(id.dir, name) }

// write writes the files of the connection.
func (id *Identity) write(ctx context.Context) error {
	c, s := id.client, id.Settings
	sub := &RunDir{Path: id.dir}
	var err error
	f := files{controlPath: id.file("ctl")}
	if s.Key != "" {
		if f.key, err = sub.Plain(c.absolute(s.Key), "id", ".pub", "-cert.pub"); err != nil {
			return err
		}
	}
	if s.ClientConfig != "" {
		// A copy, because Include globs its path, ignores a missing file and refuses
		// foreign owners, all of which -F does not.
		text, err := os.ReadFile(s.ClientConfig)
		if err != nil {
			return fmt.Errorf("reading the client configuration: %w", err)
		}
		if f.clientConfig, err = sub.Write("client", string(text)); err != nil {
			return err
		}
	}
	if id.Pinned {
		if f.pin, err = sub.Write("pin", hostkeys.PinFile(s.HostKeys)); err != nil {
			return err
		}
	}
	key := ""
	if s.Key != "" {
		key = c.absolute(s.Key)
	}
	if id.Saved = hostkeys.Saved(key, c.TempDir); id.Saved != "" {
		if f.saved, err = sub.Plain(id.Saved, "saved"); err != nil {
			return err
		}
	}
	id.files = f
	if _, err = sub.Write("rider", riderConfig(f.controlPath)); err != nil {
		return err
	}
	return id.writeConfig(ctx)
}

// writeConfig writes the configuration as it is to be now.
func (id *Identity) writeConfig(ctx context.Context) error {
	c, s := id.client, id.Settings
	if strings.Contains(s.User, "%") && c.userExpands(ctx) {
		s.User = strings.ReplaceAll(s.User, "%", "%%")
	}
	keepalive := or(c.Keepalive, defaultKeepalive)
	id.Config = config(s, id.files, id.trusted, limits{
		connectSeconds: max(1, int(or(c.ConnectTimeout, defaultConnectTimeout).Seconds())),
		// ssh ends a session at the first interval after keepaliveCount unanswered questions.
		keepaliveSeconds: max(1, int(keepalive.Seconds())/(keepaliveCount+1)),
		keepaliveCount:   keepaliveCount,
	})
	_, err := (&RunDir{Path: id.dir}).Write("config", id.Config)
	return err
}

// refusedOptions finds the items that ssh refuses, each in ssh's own words. Nil
// means that err is no refusal of the configuration.
func (id *Identity) refusedOptions(ctx context.Context, err error) []Problem {
	var failed *child.Error
	if !errors.As(err, &failed) || failed.Cause != nil {
		return nil
	}
	var problems []Problem
	for i := range id.Settings.Options {
		problems = append(problems, id.refusedOption(ctx, i)...)
	}
	if len(problems) > 0 {
		return problems
	}
	words := strings.ReplaceAll(failed.Stderr, id.file("client"), id.Settings.ClientConfig)
	if strings.Contains(words, "jumphost loop") {
		return []Problem{{Field: "options", Index: -1, Text: loopText(words, id.Settings.Host)}}
	}
	return []Problem{{Text: "ssh refuses the configuration: " + strings.ReplaceAll(words, id.file("config"), "the generated file")}}
}

// refusedOption asks ssh about one item alone.
func (id *Identity) refusedOption(ctx context.Context, i int) []Problem {
	item := id.Settings.Options[i]
	_, err := id.client.ask(ctx, "-F", "none", "-o", item, "--", riderHost)
	var refused *child.Error
	if errors.As(err, &refused) && refused.Cause == nil {
		return []Problem{{Field: "options", Index: i, Text: fmt.Sprintf("%q: ssh refuses it: %s", item, ownWords(refused.Stderr))}}
	}
	return nil
}

// ownWords takes the place off ssh's words: an option given alone is always in line 0.
func ownWords(words string) string {
	var kept []string
	for line := range strings.Lines(words) {
		line = strings.TrimSpace(line)
		for _, place := range []string{"command-line: line 0: ", "command-line line 0: "} {
			line = strings.TrimPrefix(line, place)
		}
		if line != "" && !strings.HasPrefix(line, "Pseudo-terminal") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "; ")
}

func loopText(what, host string) string {
	return fmt.Sprintf("%s: the jump host has the node's own host %q, so the node's settings would be the jump host's too; "+
		"give the node another host, any name, and the address as an option: host = \"%s-node\", options = [ \"HostName=%s\" … ]",
		what, host, strings.NewReplacer(":", "-", "%", "-").Replace(host), host)
}

// maxHops bounds a chain of jump hosts that have jump hosts.
const maxHops = 16

// hops finds the jump hosts: those of the node, and those that the first of them has itself.
func (id *Identity) hops(ctx context.Context) ([]Problem, error) {
	e := id.Effective
	for len(id.Hops) < maxHops {
		hops, err := parseJump(e.Get("proxyjump"))
		if err != nil {
			return []Problem{{Field: "options", Index: -1, Text: err.Error()}}, nil
		}
		if len(hops) == 0 {
			return nil, nil
		}
		for _, h := range hops {
			if strings.EqualFold(h.Host, id.Settings.Host) {
				return []Problem{{Field: "options", Index: -1, Text: loopText("ProxyJump "+h.String(), id.Settings.Host)}}, nil
			}
		}
		id.Hops = append(hops, id.Hops...)
		// Only the first one's own configuration can still add a jump: for the others
		// ssh gives the rest of the chain on the command line.
		if e, err = id.askHop(ctx, hops[0]); err != nil {
			return []Problem{{Text: fmt.Sprintf("jump host %s: %s", hops[0], err)}}, nil
		}
	}
	return []Problem{{Field: "options", Index: -1, Text: fmt.Sprintf("more than %d jump hosts, in a circle perhaps", maxHops)}}, nil
}

func (id *Identity) askHop(ctx context.Context, h Hop) (Effective, error) {
	return id.client.ask(ctx, append([]string{"-F", id.file("config")}, h.args()...)...)
}

// knownHosts finds what is known of the keys on the way: in the files that ssh will
// read and, where that is the file of first uses and has nothing, in the user's own.
func (id *Identity) knownHosts(ctx context.Context) error {
	id.KnownHosts = id.client.knownHostsFiles(id.Effective, id.files, id.Saved)
	if !id.Pinned {
		known, err := id.look(ctx, id.Effective, id.Settings.Host)
		if err != nil {
			return err
		}
		id.Known, id.trusted.node = known, known
	}
	for _, h := range id.Hops {
		e, err := id.askHop(ctx, h)
		if err != nil {
			return fmt.Errorf("jump host %s: %w", h, err)
		}
		known, err := id.look(ctx, e, h.Host)
		if err != nil {
			return err
		}
		if known && hostPattern(h.Host) && !slices.Contains(id.trusted.hops, h.Host) {
			id.trusted.hops = append(id.trusted.hops, h.Host)
		}
	}
	if !id.trusted.node && id.trusted.hops == nil {
		return nil
	}
	if err := id.writeConfig(ctx); err != nil {
		return err
	}
	effective, err := id.client.ask(ctx, "-F", id.file("config"), "--", id.Settings.Host)
	if err == nil {
		id.Effective = effective
	}
	return err
}

// look reports whether a host's key is known, and remembers it if not.
func (id *Identity) look(ctx context.Context, e Effective, host string) (known bool, err error) {
	c, name := id.client, e.KnownAs()
	files := c.knownHostsFiles(e, id.files, id.Saved)
	entries, err := c.lookUp(ctx, files, name)
	if err != nil || len(entries) > 0 {
		return trustworthy(entries), err
	}
	u := unsavedName{name: name, files: files}
	if id.Saved != "" && len(files) > 0 && files[0] == id.Saved {
		// What plain ssh would go by.
		args := []string{"--", host}
		if id.Settings.ClientConfig != "" {
			args = append([]string{"-F", id.Settings.ClientConfig}, args...)
		}
		plain, err := c.ask(ctx, args...)
		if err != nil {
			return false, err
		}
		own := c.knownHostsFiles(plain, id.files, id.Saved)
		if u.entries, err = c.lookUp(ctx, own, name); err != nil {
			return false, err
		}
	}
	id.unsaved = append(id.unsaved, u)
	return trustworthy(u.entries), nil
}

// trustworthy reports whether entries name a key to trust, not only revoked ones.
func trustworthy(entries []hostkeys.Entry) bool {
	return slices.ContainsFunc(entries, func(e hostkeys.Entry) bool { return e.Marker != "revoked" })
}

// takeOver copies into the file of first uses what the user's own files know, so
// that a first use can't replace known trust. It returns notes of that.
func (id *Identity) takeOver() ([]string, error) {
	id.client.saving.Lock()
	defer id.client.saving.Unlock()
	var notes []string
	for i, u := range id.unsaved {
		if len(u.entries) == 0 {
			continue
		}
		var lines, from []string
		for _, e := range u.entries {
			lines = append(lines, e.Text)
			if !slices.Contains(from, e.File) {
				from = append(from, e.File)
			}
		}
		if err := hostkeys.Add(id.Saved, lines); err != nil {
			return nil, fmt.Errorf("taking over the known host keys of %s: %w", u.name, err)
		}
		id.unsaved[i].entries = nil
		notes = append(notes, fmt.Sprintf("the host key of %s was taken over from %s into %s", u.name, strings.Join(from, ", "), id.Saved))
	}
	return notes, nil
}

// notSaved returns notes of keys that a first use did not save.
func (id *Identity) notSaved(ctx context.Context) []string {
	var notes []string
	for _, u := range id.unsaved {
		if entries, err := id.client.lookUp(ctx, u.files, u.name); err == nil && len(entries) == 0 {
			where := "any file"
			if len(u.files) > 0 {
				where = u.files[0]
			}
			notes = append(notes, fmt.Sprintf("the host key of %s could not be saved in %s: the next run trusts any key again", u.name, where))
		}
	}
	return notes
}

// lookUp looks a name up in several files.
func (c *Client) lookUp(ctx context.Context, files []string, name string) ([]hostkeys.Entry, error) {
	var all []hostkeys.Entry
	for _, file := range files {
		entries, err := hostkeys.LookUp(ctx, c.Local, file, name)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	return all, nil
}

// knownHostsFiles are the files that ssh reads known hosts from, the one that it
// writes to first. Where a link stands for saved, saved itself is named.
func (c *Client) knownHostsFiles(e Effective, f files, saved string) []string {
	var all []string
	for _, keyword := range []string{"userknownhostsfile", "globalknownhostsfile"} {
		for _, file := range split(e.Get(keyword)) {
			switch file {
			case "none", "/dev/null":
				continue
			case f.saved:
				file = saved
			}
			if !slices.Contains(all, file) {
				all = append(all, c.home(file))
			}
		}
	}
	return all
}

// split parts a list of files as `ssh -G` prints it: by blanks, unquoted, so that
// a file with a blank in its name is found by being there.
func split(list string) []string {
	if _, err := os.Stat(list); err == nil && list != "" {
		return []string{list}
	}
	return strings.Fields(list)
}

// hostPattern reports whether a host can stand in a Host line as itself.
func hostPattern(host string) bool {
	return host != "" && !strings.ContainsAny(host, "*?!,\"'\\# \t")
}

// userExpands asks ssh whether it expands % in User: it does since OpenSSH 10.
func (c *Client) userExpands(ctx context.Context) bool {
	e, err := c.ask(ctx, "-F", "none", "-o", "User=%%", "--", riderHost)
	return err == nil && e.Get("user") == "%"
}

// absolute is a path as the operator means it.
func (c *Client) absolute(path string) string {
	path = c.home(path)
	if !filepath.IsAbs(path) && c.Local.Dir != "" {
		path = filepath.Join(c.Local.Dir, path)
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// checkKeyOnce is checkKey, once for each key file of a run.
func (c *Client) checkKeyOnce(ctx context.Context, path, agent string) error {
	type check struct{ path, agent string }
	checked, _ := c.keys.LoadOrStore(check{path, agent}, &keyCheck{})
	k := checked.(*keyCheck)
	k.once.Do(func() { k.err = c.checkKey(ctx, path, agent) })
	return k.err
}
