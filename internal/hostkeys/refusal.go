package hostkeys

import (
	"regexp"
	"strconv"
	"strings"
)

// Refusal is what ssh said when it refused a host's key.
type Refusal struct {
	// Host is the name that ssh looked up, as "[10.0.0.2]:2222"; empty when it gave none.
	Host string
	// Shown is the type and fingerprint of the key that the host showed, as
	// "ED25519 SHA256:…"; empty when ssh did not say.
	Shown string
	// File and Line are where the entry stands that the key was compared with;
	// Line is 0 when there was none.
	File string
	Line int
	// Revoked is set when the key is marked as revoked.
	Revoked bool
	// Node is whether the node itself showed a key. If not, it was a hop's.
	Node bool
}

// The texts are those of warn_changed_key and check_host_key in OpenSSH's
// sshconnect.c; the scenarios meet the real ones.
var (
	changedKey  = regexp.MustCompile(`(?m)^The fingerprint for the (\S+) key sent by the remote host is\n(\S+?)\.?$`)
	offending   = regexp.MustCompile(`(?m)^Offending (?:\S+ )?key (?:for IP )?in (.+):(\d+)$`)
	hostChanged = regexp.MustCompile(`(?m)^(?:Host key for|\S+ host key for) (\S+) (?:has changed|was revoked)`)
	unknownKey  = regexp.MustCompile(`(?m)^No (\S+) host key is known for (\S+) and you have requested strict checking\.$`)
	shownKey    = regexp.MustCompile(`(?m)^debug1: sshconnect\.c:verify_host_key\(\).*: Server host (?:key|certificate): (\S+) (\S+?),?( |$)`)
	revokedKey  = regexp.MustCompile(`(?m)^The (\S+) host key for (\S+) is marked as revoked\.$`)
)

// LogVerbose is the value of ssh_config's LogVerbose with which ssh names the key
// that a host shows, whatever its LogLevel.
const LogVerbose = "sshconnect.c:verify_host_key():*"

// IsShownKey reports whether a line of ssh's words is there because of [LogVerbose].
func IsShownKey(line string) bool {
	return strings.HasPrefix(line, "debug1: sshconnect.c:verify_host_key()")
}

// ParseRefusal reads ssh's words; ok is false when they tell of no refused key.
func ParseRefusal(words string) (r Refusal, ok bool) {
	words = strings.ReplaceAll(words, "\r\n", "\n")
	if m := changedKey.FindStringSubmatch(words); m != nil {
		r.Shown, ok = m[1]+" "+m[2], true
	}
	if m := hostChanged.FindStringSubmatch(words); m != nil {
		r.Host, ok = m[1], true
	}
	if m := unknownKey.FindStringSubmatch(words); m != nil {
		r.Host, ok = m[2], true
	}
	if m := revokedKey.FindStringSubmatch(words); m != nil {
		r.Host, r.Revoked, ok = m[2], true, true
	}
	if m := offending.FindStringSubmatch(words); m != nil {
		r.File = m[1]
		r.Line, _ = strconv.Atoi(m[2])
	}
	if m := shownKey.FindStringSubmatch(words); m != nil {
		r.Node = true
		r.Shown = Label(m[1]) + " " + m[2]
	}
	return r, ok
}
