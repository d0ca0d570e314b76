package closure

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
			return System{}, fmt.Errorf("%s is no NixOS system that can be switched to: it has no %s", toplevel, file)
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
