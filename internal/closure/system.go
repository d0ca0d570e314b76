package closure

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

// System is what a toplevel says of itself.
type System struct {
	// Platform is the Nix system it is for, such as "x86_64-linux". The derivation
	// can't tell, for it names the system of its builder, another one where the
	// toplevel was cross-compiled.
	Platform string
	// Interface is its init-interface-version; empty when it has none.
	Interface string
	// Inhibitors is its switch-inhibitors, a JSON object; empty when it has none.
	Inhibitors string
}

// Inspect reads a toplevel in the deployer's store. One that is no NixOS system,
// or can't be switched to, is an error.
func Inspect(toplevel string) (System, error) {
	for _, file := range []string{"nixos-version", "bin/switch-to-configuration"} {
		if _, err := os.Stat(filepath.Join(toplevel, file)); err != nil {
			return System{}, lacks(toplevel, file)
		}
	}
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(toplevel, name)) // not every system has it
		return strings.TrimSpace(string(text))
	}
	return System{
		Platform: read("system"), Interface: read("init-interface-version"), Inhibitors: read("switch-inhibitors"),
	}, nil
}

// lacks is the error of a path that is no system.
func lacks(toplevel, file string) error {
	return fmt.Errorf("%s is no NixOS system that can be switched to: it has no %s", toplevel, file)
}

// InspectThere is [Inspect] for a toplevel in a host's store. The error is an
// [*ssh.Error] when the way to the host was lost.
func InspectThere(ctx context.Context, h Builds, toplevel string) (System, error) {
	var answer bytes.Buffer
	err := h.Run(ctx, ssh.Script{Doing: "reading the system that was built", Output: &answer, Text: fmt.Sprintf(`cd '%s' || exit
for file in nixos-version bin/switch-to-configuration; do [ -e $file ] || echo "lacks $file"; done
for file in system init-interface-version switch-inhibitors; do
    if [ -e $file ]; then echo "$file $(tr '\n' ' ' <$file)"; fi
done
`, toplevel)})
	if err != nil {
		return System{}, err
	}
	said := map[string]string{}
	for line := range strings.Lines(answer.String()) {
		name, value, _ := strings.Cut(line, " ")
		if value = strings.TrimSpace(value); name == "lacks" {
			return System{}, lacks(toplevel, value)
		}
		said[name] = value
	}
	return System{Platform: said["system"], Interface: said["init-interface-version"], Inhibitors: said["switch-inhibitors"]}, nil
}
