// Package cli holds the frame that the examples share: exit codes, signals, flags and counts.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/idem-go/idem"
)

// The exit codes.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

// Usage returns the exit code for an error of the flags. The flags have printed the error.
func Usage(err error) int {
	if errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	return ExitUsage
}

// Checked returns problem, a wrong value of a flag. It prints the problem and the usage of the
// flags first, unless problem is nil.
func Checked(flags *flag.FlagSet, problem error) error {
	if problem != nil {
		fmt.Fprintln(flags.Output(), problem)
		flags.Usage()
	}
	return problem
}

// UntilSignal returns a context that ends with the first SIGINT or SIGTERM. A second signal ends
// the program at once.
func UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Run runs work until it returns, and ends the context of work with the first signal. It logs the
// error of work and returns the exit code.
func Run(ctx context.Context, log *slog.Logger, work func(context.Context) error) int {
	ctx, stop := UntilSignal(ctx)
	defer stop()
	if err := work(ctx); err != nil {
		log.Error("failed", "error", idem.ErrorText(err))
		return ExitError
	}
	return ExitOK
}

// Report logs counts under name at an interval until ctx ends.
func Report(
	ctx context.Context, log *slog.Logger, every time.Duration, name string, counts slog.LogValuer,
) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			log.InfoContext(ctx, "so far", name, counts)
		}
	}
}
