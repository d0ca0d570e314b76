// Command deploy-ssh updates NixOS hosts over SSH.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/deploy-ssh/deploy-ssh/internal/cli"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

func main() {
	// A copy's memory is mostly that of encoders, which live long: with the default a
	// heap of twice that size would be let grow before anything is collected.
	debug.SetGCPercent(40)
	// A deploy must not end half-way because nobody reads its output any more.
	// Notify, not Ignore: children would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		// Who starts a program with a signal ignored, as nohup does, means it.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() {
		<-signals
		cancel()
		// The second signal ends the program at once; its children end with it.
		<-signals
		cli.Abandon()
		os.Exit(verdict.ExitInterrupted)
	}()
	os.Exit(cli.Run(ctx, cli.Process{Args: os.Args[1:], Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}))
}
