package activate

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// Preview is what an activation would do to a host's units.
type Preview struct {
	Stop, Restart, Reload, Start []string
	// Kept are units that changed and would not be stopped for it.
	Kept []string
	// RestartsSystemd is whether systemd itself would be started anew.
	RestartsSystemd bool
}

// previewLimit bounds a dry run. It does no work but compare.
const previewLimit = 3 * time.Minute

// PreviewOf asks a system that is on the host what its activation would do. Unlike a
// run of [DryActivate] under supervision it leaves nothing on the host, and is not
// tried again where the lock is held: the error says so then.
func PreviewOf(ctx context.Context, conn interface {
	Run(context.Context, ssh.Script) error
}, toplevel string) (Preview, error) {
	var said bytes.Buffer
	err := conn.Run(ctx, ssh.Script{
		Doing: "asking the system what its activation would do", Output: &said, Timeout: previewLimit + 30*time.Second,
		Text: fmt.Sprintf(`unset __NIXOS_SWITCH_TO_CONFIGURATION_PARENT_EXE
timeout %d %s/bin/switch-to-configuration dry-activate 2>&1
printf '\nended with %%s\n' $?
`, wholeSeconds(previewLimit), quote(toplevel)),
	})
	if err != nil {
		return Preview{}, err
	}
	return parsePreview(said.String())
}

// parsePreview reads the output of `switch-to-configuration dry-activate`, of both its
// generations, in front of the line about its end.
func parsePreview(said string) (Preview, error) {
	body, end, complete := cutLast(strings.TrimRight(said, "\n"), "\nended with ")
	code, err := strconv.Atoi(end)
	if !complete || err != nil {
		return Preview{}, fmt.Errorf("the answer of the dry run ends early, after %d bytes", len(said))
	}
	var words wordScanner
	words.Write([]byte(body))
	words.flush()
	if code != 0 {
		if words.words.LastError != "" {
			return Preview{}, fmt.Errorf("switch-to-configuration dry-activate ended with exit code %d: %s", code, words.words.LastError)
		}
		return Preview{}, fmt.Errorf("switch-to-configuration dry-activate ended with exit code %d", code)
	}
	var p Preview
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if line == "would restart systemd" {
			p.RestartsSystemd = true
		}
		for prefix, into := range map[string]*[]string{
			"would stop the following units: ":             &p.Stop,
			"would NOT stop the following changed units: ": &p.Kept,
			"would restart the following units: ":          &p.Restart,
			"would reload the following units: ":           &p.Reload,
			"would start the following units: ":            &p.Start,
		} {
			if names, ok := strings.CutPrefix(line, prefix); ok {
				*into = append(*into, strings.Split(names, ", ")...)
			}
		}
	}
	return p, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
