package ssh

import (
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/hostkeys"
)

// Settings is what a node's layers say of the way to it.
type Settings struct {
	// Host is the destination: a name, an alias of the client configuration,
	// or an address, IPv6 without brackets.
	Host string
	// User is the login user.
	User string
	// Key is the path of the private key; empty leaves it to ssh's own list and the agent.
	Key string
	// HostKeys are the pinned public keys; empty means trust on first use.
	HostKeys []string
	// PinOrigin says where the pin was written, for errors; may be empty.
	PinOrigin string
	// Options are bare Key=Value items, each written into the file as it is.
	Options []string
	// ClientConfig is the client configuration that the operator gave; empty when none.
	ClientConfig string
	// Elevate is how the login user becomes root; empty when it is root.
	Elevate Elevation
}

// files are the paths that a node's configuration refers to,
// all of them safe to write into it (see [pasteable]).
type files struct {
	controlPath  string
	key          string // "" when the settings name none
	clientConfig string // "" when the operator gave none: the implicit files are included
	pin          string // known_hosts file of the pinned keys; "" when there are none
	saved        string // known_hosts file of first uses; "" leaves ssh's default
}

// trusted says what the saved keys know already.
type trusted struct {
	// node is whether there is a key for the node, so that no other is to be taken.
	node bool
	// hops are the jump hosts for which there is one, as ssh is told to reach them.
	hops []string
}

// limits are the bounded waits of every connection.
type limits struct {
	connectSeconds   int
	keepaliveSeconds int
	keepaliveCount   int
}

// forced stands above everything else and so can't be set by anyone: in
// ssh_config(5) the first value wins. All of it would break a session that no
// person watches: a prompt, a terminal, a command of the user's own, a
// connection shared with somebody else, or silence about a refusal.
const forced = `Match all
    BatchMode yes
    RequestTTY no
    RemoteCommand none
    SessionType default
    StdinNull no
    ForkAfterAuthentication no
    PermitLocalCommand no
    ControlMaster no
    ControlPersist no
    LogLevel INFO
`

// hostKeyKeywords closes every other source of trust, so that no implicit file
// fills a gap: with NoHostAuthenticationForLocalhost yes in ~/.ssh/config, say,
// a node at localhost would log in on a wrong pin.
const hostKeyKeywords = `    GlobalKnownHostsFile /dev/null
    NoHostAuthenticationForLocalhost no
    KnownHostsCommand none
    VerifyHostKeyDNS no
    UpdateHostKeys no
    CheckHostIP no
`

// config is the ssh_config of one node. The order of its blocks is the precedence:
// forced values, the node's own, the operator's client configuration, the host
// key values of the deploy, and last what plain ssh would read.
func config(s Settings, f files, t trusted, l limits) string {
	var b strings.Builder
	b.WriteString("# Written by deploy-ssh for one run. The first value of a keyword wins.\n")
	b.WriteString(forced)

	fmt.Fprintf(&b, "Host %s\n", s.Host)
	fmt.Fprintf(&b, "    ControlPath %s\n", f.controlPath)
	for _, option := range s.Options {
		// The item as it is, for then it means what `ssh -o ITEM` means.
		fmt.Fprintf(&b, "    %s\n", option)
	}
	if s.User != "" {
		fmt.Fprintf(&b, "    User %s\n", quoted(s.User))
	}
	if f.key != "" {
		fmt.Fprintf(&b, "    IdentityFile %s\n    IdentitiesOnly yes\n", f.key)
	}

	if f.clientConfig != "" {
		fmt.Fprintf(&b, "Match all\n    Include %s\n", f.clientConfig)
	}

	fmt.Fprintf(&b, "Host %s\n", s.Host)
	if f.pin != "" {
		b.WriteString(trust("yes", f.pin))
	} else {
		b.WriteString(trust(checking(t.node), f.saved))
	}
	// For the error when the key is refused: ssh does not always name the key it was shown.
	fmt.Fprintf(&b, "    LogVerbose %s\n", hostkeys.LogVerbose)

	// Hops are trusted on first use with the same saved keys, also when the node is pinned.
	for _, hop := range t.hops {
		fmt.Fprintf(&b, "Host %s\n    StrictHostKeyChecking yes\n", hop)
	}
	b.WriteString("Match all\n")
	b.WriteString(trust(checking(false), f.saved))
	fmt.Fprintf(&b, "    ConnectTimeout %d\n", l.connectSeconds)
	fmt.Fprintf(&b, "    ServerAliveInterval %d\n    ServerAliveCountMax %d\n", l.keepaliveSeconds, l.keepaliveCount)

	if f.clientConfig == "" {
		b.WriteString("    Include ~/.ssh/config\n    Include /etc/ssh/ssh_config\n")
	}
	return b.String()
}

// checking is the value of StrictHostKeyChecking. With accept-new ssh refuses another
// key than the saved one, but not one without the certificate that a saved
// @cert-authority line demands.
func checking(known bool) string {
	if known {
		return "yes"
	}
	return "accept-new"
}

func trust(checking, knownHosts string) string {
	text := fmt.Sprintf("    StrictHostKeyChecking %s\n", checking)
	if knownHosts != "" {
		text += fmt.Sprintf("    UserKnownHostsFile %s\n", knownHosts)
	}
	return text + hostKeyKeywords
}

// quoted is a value as one word of ssh_config, see argv_split in OpenSSH's misc.c.
func quoted(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

// riderConfig is the configuration of Nix's ssh, which rides on an open master. It knows
// the master's socket and nothing else, so when the master is gone it fails instead of
// dialling on its own.
func riderConfig(controlPath string) string {
	return "# Written by deploy-ssh for one run: rides on the open connection, never dials.\n" + forced +
		fmt.Sprintf("    ControlPath %s\n    ProxyCommand false\n", controlPath)
}

// pasteable reports whether a path can stand in ssh_config and in the shell
// commands that ssh makes of -F for each hop without quoting or expansion.
func pasteable(path string) bool {
	for _, r := range path {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		case strings.ContainsRune("/._-", r):
		default:
			return false
		}
	}
	return path != "" && path[0] == '/'
}
