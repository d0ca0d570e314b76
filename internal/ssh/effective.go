package ssh

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// Effective is what the ssh client makes of a configuration: the values of each
// keyword, by its lower case name, in order.
type Effective map[string][]string

// parseEffective reads what `ssh -G` prints: a keyword and its value on each line.
func parseEffective(out []byte) Effective {
	values := Effective{}
	for line := range strings.Lines(string(out)) {
		keyword, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		if keyword == "" {
			continue
		}
		keyword = strings.ToLower(keyword)
		values[keyword] = append(values[keyword], value)
	}
	return values
}

// Get is the keyword's first value; empty when it has none.
func (e Effective) Get(keyword string) string {
	if values := e[keyword]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// KnownAs is the name under which ssh looks the host up in known_hosts:
// its alias, or its name or address, with the port unless that is 22.
func (e Effective) KnownAs() string {
	if alias := e.Get("hostkeyalias"); alias != "" && alias != "none" {
		return alias
	}
	host, port := e.Get("hostname"), e.Get("port")
	if port == "" || port == "22" {
		return host
	}
	return "[" + host + "]:" + port
}

// askTimeout bounds one `ssh -G`, which may run a Match exec of the user's.
const askTimeout = 30 * time.Second

// ask returns what ssh makes of its arguments, without a connection to anything.
func (c *Client) ask(ctx context.Context, args ...string) (Effective, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("no answer within %v", askTimeout))
	defer cancel()
	result, err := c.Local.Run(ctx, child.Command{Name: "ssh", Args: append([]string{"-G", "-T"}, args...), Subject: "ssh -G"})
	if err != nil {
		return nil, err
	}
	return parseEffective(result.Stdout), nil
}

// Hop is one jump host on the way to a node.
type Hop struct {
	// User is empty and Port 0 where the jump says nothing of them.
	User string
	Host string
	Port int
}

// String is the hop as ProxyJump has it.
func (h Hop) String() string {
	text := h.Host
	if h.Port != 0 {
		text = net.JoinHostPort(h.Host, strconv.Itoa(h.Port))
	}
	if h.User != "" {
		text = h.User + "@" + text
	}
	return text
}

// args are the arguments with which ssh is asked for the hop.
func (h Hop) args() []string {
	var args []string
	if h.User != "" {
		args = append(args, "-l", h.User)
	}
	if h.Port != 0 {
		args = append(args, "-p", strconv.Itoa(h.Port))
	}
	return append(args, "--", h.Host)
}

// parseJump reads the value of ProxyJump as `ssh -G` prints it:
// [USER@]HOST[:PORT], separated by commas, the first one reached first.
func parseJump(value string) ([]Hop, error) {
	if value == "" || strings.EqualFold(value, "none") {
		return nil, nil
	}
	var hops []Hop
	for _, item := range strings.Split(value, ",") {
		text := strings.TrimSuffix(strings.TrimPrefix(item, "ssh://"), "/")
		var h Hop
		// The user may have an @ itself.
		if i := strings.LastIndex(text, "@"); i >= 0 {
			h.User, text = text[:i], text[i+1:]
		}
		switch host, port, err := net.SplitHostPort(text); {
		case err == nil:
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("jump host %q: %q is no port", item, port)
			}
			h.Host, h.Port = host, int(n)
		case strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"):
			h.Host = text[1 : len(text)-1]
		default:
			h.Host = text
		}
		if h.Host == "" || strings.HasPrefix(h.Host, "-") {
			return nil, fmt.Errorf("jump host %q: no host", item)
		}
		hops = append(hops, h)
	}
	return hops, nil
}
