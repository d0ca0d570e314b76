package closure

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// System reads what a toplevel in the deployer's store says of itself: the Nix
// system it is for, such as "x86_64-linux". The derivation can't tell, for it
// names the system of its builder, another one where the toplevel was cross-compiled.
// A toplevel that is no NixOS system, or can't be switched to, is an error.
func System(toplevel string) (string, error) {
	for _, file := range []string{"nixos-version", "bin/switch-to-configuration"} {
		if _, err := os.Stat(filepath.Join(toplevel, file)); err != nil {
			return "", fmt.Errorf("%s is no NixOS system that can be switched to: it has no %s", toplevel, file)
		}
	}
	text, err := os.ReadFile(filepath.Join(toplevel, "system"))
	if err != nil {
		return "", fmt.Errorf("reading which system %s is for: %w", toplevel, err)
	}
	return strings.TrimSpace(string(text)), nil
}
