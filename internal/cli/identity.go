package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/settings"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// identityFlags are the bounded waits of every connection.
type identityFlags struct {
	connect, login, keepalive, command time.Duration
}

func (f *identityFlags) add(flags *pflag.FlagSet) {
	flags.DurationVar(&f.connect, "connect-timeout", 15*time.Second, "how long each try to connect may take")
	flags.DurationVar(&f.login, "login-timeout", 150*time.Second, "how long a whole connection with its login may take")
	flags.DurationVar(&f.keepalive, "keepalive-timeout", 30*time.Second, "how long a frozen session lives, on jump hosts too; at least 4s")
	flags.DurationVar(&f.command, "command-timeout", 2*time.Minute, "how long each remote command may take that isn't the switch")
}

func (f *identityFlags) check() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		// ssh counts in whole seconds.
		{"connect-timeout", f.connect, time.Second},
		{"login-timeout", f.login, time.Second},
		{"keepalive-timeout", f.keepalive, 4 * time.Second},
		{"command-timeout", f.command, time.Second},
	} {
		if d.value < d.least {
			return usageError{fmt.Errorf("--%s %v: at least %v is wanted", d.flag, d.value, d.least)}
		}
	}
	return nil
}

// parallelQuestions is how many nodes ssh is asked about at once. It contacts nobody then.
const parallelQuestions = 8

// prepare makes the one way to each node, and checks it with ssh itself: the
// options, the key files, the jumps. No host is contacted. The error has the
// problems of all nodes, in their order.
func (f *identityFlags) prepare(ctx context.Context, p Process, dir *ssh.RunDir, nodes []plan.Node, clientConfig string) (map[string]*ssh.Identity, error) {
	client := &ssh.Client{
		Local: p.local(), Dir: dir, TempDir: or(p.getenv("TMPDIR"), os.TempDir()),
		ConnectTimeout: f.connect, LoginTimeout: f.login, Keepalive: f.keepalive, CommandTimeout: f.command,
	}
	identities := make([]*ssh.Identity, len(nodes))
	failures := make([]error, len(nodes))
	work := pool.New().WithMaxGoroutines(parallelQuestions)
	for i, n := range nodes {
		if n.EvalError != "" {
			continue
		}
		work.Go(func() { identities[i], failures[i] = client.Prepare(ctx, n.Name, way(n, clientConfig)) })
	}
	work.Wait()
	var problems []settings.Problem
	byName := map[string]*ssh.Identity{}
	for i, n := range nodes {
		var refused *ssh.SettingsError
		switch {
		case errors.As(failures[i], &refused):
			for _, problem := range refused.Problems {
				placed := place(n, problem)
				// A shared setting is wrong once, however many nodes have it.
				if !slices.Contains(problems, placed) {
					problems = append(problems, placed)
				}
			}
		case failures[i] != nil:
			return nil, failures[i]
		case identities[i] != nil:
			byName[n.Name] = identities[i]
		}
	}
	noteSameWay(nodes, byName)
	return byName, settings.Err(problems)
}

// way is a node's settings as ssh takes them.
func way(n plan.Node, clientConfig string) ssh.Settings {
	s := n.SSH
	return ssh.Settings{
		Host: s.Host.V, User: s.User.V, Key: s.Key.V, HostKeys: s.HostKeys.V, PinOrigin: origin(s.HostKeys.Origin, "hostKey"),
		Options: s.Options.V, ClientConfig: clientConfig, Elevate: ssh.Elevation(n.Elevate.V),
	}
}

// place names the layer that a problem comes from.
func place(n plan.Node, p ssh.Problem) settings.Problem {
	at := map[string]string{
		"key": n.SSH.Key.Origin, "user": n.SSH.User.Origin, "host": n.SSH.Host.Origin, "options": n.SSH.Options.Origin,
	}[p.Field]
	switch {
	case at == "" || p.Field == "options" && len(n.SSH.Options.V) == 0:
		return settings.Problem{Source: "node " + n.Name, Text: p.Text}
	case p.Field == "options" && p.Index >= 0:
		return settings.Problem{Source: origin(at, fmt.Sprintf("options[%d]", p.Index)), Text: p.Text}
	}
	return settings.Problem{Source: origin(at, p.Field), Text: p.Text}
}

// origin is a field of a layer: a layer's origin has the place in its source,
// and an environment variable is the value itself.
func origin(layer, field string) string {
	if strings.Contains(layer, " ") && layer != settings.OriginRoster && layer != settings.OriginNodeName {
		return layer + "." + field
	}
	return layer
}
