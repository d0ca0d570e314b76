// Command deploy-ssh updates NixOS hosts over SSH.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/deploy-ssh/deploy-ssh/internal/cli"
)

func main() {
	// A deploy must not end half-way because nobody reads its output any more.
	// Notify, not Ignore: children would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Run(ctx, cli.Process{Args: os.Args[1:], Env: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}))
}
