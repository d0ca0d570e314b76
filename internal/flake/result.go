package flake

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// Link makes links to valid store paths, by the absolute path of the link, and keeps
// what they lead to from the garbage collector for as long as they are there. Each
// replaces what link was in its place; nothing else is replaced.
func (b Builder) Link(ctx context.Context, links map[string]string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, keepLimit, fmt.Errorf("no answer within %v", keepLimit))
	defer cancel()
	for _, link := range slices.Sorted(maps.Keys(links)) {
		keeping := fmt.Sprintf("keeping %s as %s", links[link], link)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return fmt.Errorf("%s: %w", keeping, err)
		}
		if info, err := os.Lstat(link); err == nil && info.Mode()&os.ModeSymlink == 0 {
			return fmt.Errorf("%s: something else than a link is there", keeping)
		}
		_, err := b.Runner.Run(ctx, child.Command{
			Name: "nix-store", Args: []string{"--realise", links[link], "--add-root", link, "--indirect"}, Subject: keeping,
		})
		if err != nil {
			return err
		}
	}
	return nil
}
