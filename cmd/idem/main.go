// Command idem is the operator's: what happened to an event, and how it is put right. See docs/operations.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes. A script can tell what it asked for from what went wrong.
const (
	exitOK      = 0
	exitFound   = 1 // the command worked, and what it found is bad: a doctor's verdict, an event that is not known, a refusal by the person asked
	exitUsage   = 2 // flags and arguments
	exitFailure = 3 // it could not be done: a service away, a right missing
)

// exitError ends the command with a code. Its error may be nil if all was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}
func found(format string, args ...any) error {
	return &exitError{exitFound, fmt.Errorf(format, args...)}
}

// run is main without a process, for tests.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	defer a.close()
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{exitFailure, err}
	}
	if exit.err != nil {
		fmt.Fprintln(stderr, "idem:", exit.err)
	}
	return exit.code
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "idem",
		Short:         "Look at events and put them right: ledgers, dead letters, offsets",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	a.flags(root.PersistentFlags())
	root.AddCommand(newEventCmd(a), newMigrateCmd(a), newReapCmd(a), newImportCmd(a))
	root.AddCommand(newDLQCmd(a), newRewindCmd(a), newLagCmd(a))
	root.AddCommand(newDoctorCmd(a))
	return root
}
