// Package bulk makes large closures on a rig's deployer out of its own files: real
// programs, libraries and texts, in many store paths that refer to each other.
package bulk

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
)

//go:embed bulk.nix
var expression string

//go:embed fill.pl
var fill string

// Spec describes a closure.
type Spec struct {
	// Name tells closures apart; what else is equal makes equal paths.
	Name string
	// Paths is how many it has beside its toplevel.
	Paths int
	// MiB is how large they are together.
	MiB int
	// Changed makes one path in a hundred another one than without it.
	Changed bool
}

// dir is where a deployer has the expression.
const dir = "/root/bulk"

// Build makes the closure in the deployer's store, kept from its garbage collector,
// and returns its toplevel, which can be pushed and not switched to.
func Build(ctx context.Context, deployer *rig.Host, s Spec) (string, error) {
	for name, text := range map[string]string{"bulk.nix": expression, "fill.pl": fill} {
		if err := deployer.WriteFile(ctx, dir+"/"+name, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	out, err := deployer.Sh(ctx, fmt.Sprintf("cd %s && nix-build --quiet bulk.nix -o result-%s --argstr name %[2]s --arg paths %d --arg size %d --arg changed %t",
		dir, s.Name, s.Paths, s.MiB<<20, s.Changed))
	return strings.TrimSpace(out), err
}
