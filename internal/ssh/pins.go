package ssh

import (
	"fmt"
	"strings"
)

// pinned are the values that make a pin exclusive, as `ssh -G` prints them. A
// keyword that is not printed has the value that is given here, too.
// CheckHostIP is not among them: the pin's pattern is any name and any address.
func pinned(pinFile string) [][2]string {
	return [][2]string{
		{"StrictHostKeyChecking", "true"},
		{"UserKnownHostsFile", pinFile},
		{"GlobalKnownHostsFile", "/dev/null"},
		{"NoHostAuthenticationForLocalhost", "no"},
		{"KnownHostsCommand", "none"},
		{"VerifyHostKeyDNS", "false"},
		{"UpdateHostKeys", "false"},
	}
}

// weakened tells by what a pin is weakened: each host-key keyword whose effective
// value is not the pin's, with who set it (FR-015). Nil means that the pin holds.
func weakened(e Effective, s Settings, pinFile string) []string {
	var by []string
	for _, p := range pinned(pinFile) {
		got := e.Get(strings.ToLower(p[0]))
		if got == p[1] || got == "" && p[1] == "none" {
			continue
		}
		by = append(by, fmt.Sprintf("%s %s (%s)", p[0], got, setter(s, p[0])))
	}
	return by
}

// setter names who set a keyword over the deploy's own value: an item of the
// node's options, else the client configuration, for nothing else comes before.
func setter(s Settings, keyword string) string {
	for i, item := range s.Options {
		if strings.EqualFold(optionKey(item), keyword) {
			return fmt.Sprintf("options[%d]", i)
		}
	}
	return "client configuration " + s.ClientConfig
}

// optionKey is the keyword of a Key=Value item.
func optionKey(item string) string {
	key, _, _ := strings.Cut(item, "=")
	return strings.TrimSpace(key)
}

func hasOption(s Settings, keyword string) bool {
	for _, item := range s.Options {
		if strings.EqualFold(optionKey(item), keyword) {
			return true
		}
	}
	return false
}
