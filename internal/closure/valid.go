package closure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// validityTimeout bounds a look into the deployer's own store.
const validityTimeout = 2 * time.Minute

// Invalid returns those of some store paths that the deployer's store doesn't have.
// A path that lies there and isn't registered, as a copy cut short leaves one, is such
// a path, too.
func Invalid(ctx context.Context, runner child.Runner, paths []string) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, validityTimeout, fmt.Errorf("no answer within %v", validityTimeout))
	defer cancel()
	result, err := runner.Run(ctx, child.Command{
		Name: "nix-store", Args: append([]string{"--check-validity", "--print-invalid"}, paths...),
		Subject: "asking the store of this machine for the systems",
	})
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(result.Stdout)), nil
}
