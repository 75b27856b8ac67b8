// Command idem shows the state of events and changes it. See docs/command.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ^C ends the process at once
	redis.SetLogger(quiet{})     // its errors are returned as well
	code := eventGroup(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// quiet discards the log.
type quiet struct{}

// Printf implements the logger of go-redis.
func (quiet) Printf(context.Context, string, ...any) {}

// The exit codes separate the result of a command from the failure.
const (
	exitOK      = 0
	exitFound   = 1 // a bad result: findings of the doctor, an unknown event, a refused question
	exitUsage   = 2 // flags and arguments
	exitFailure = 3 // it could not be done: a service away, a right missing
)

// exitError ends the command with a code. Its error is nil if the text was printed already.
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

// eventGroup is main without a process, for tests.
func eventGroup(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return (&app{stdin: stdin, stdout: stdout, stderr: stderr}).run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	defer a.close()
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch exit := a.exitOf(err); {
	case exit == nil && a.auditFailed:
		return exitFailure // done, but the audit file has no record
	case exit == nil:
		return exitOK
	default:
		if exit.err != nil {
			fmt.Fprintln(a.stderr, "idem:", plainLines(a.redact(exit.err.Error())))
		}
		return exit.code
	}
}

// exitOf returns the exit code of an error. An error before the begin of a command is one of usage.
func (a *app) exitOf(err error) *exitError {
	var exit *exitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return exit
	case !a.begun:
		return &exitError{exitUsage, err}
	}
	return &exitError{exitFailure, err}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "idem",
		Short: "Look at events and put them right: stores, dead letters, offsets",
		Long: "Look at events and put them right: stores, dead letters, offsets.\n\n" +
			"Exit codes: 0 done; 1 it worked and what it found is bad, or a person refused; 2 flags or arguments; 3 it could not be done.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(
		func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} },
	)
	a.flags(root.PersistentFlags())
	complete(root, "output", outputs...)
	complete(root, "sasl-mechanism", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
	root.AddCommand(newEventCmd(a), newMigrateCmd(a), newReapCmd(a), newImportCmd(a))
	root.AddCommand(newDLQCmd(a), newRewindCmd(a), newLagCmd(a))
	root.AddCommand(newRelayCmd(a), newOutboxCmd(a), newDoctorCmd(a))
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		a.harden(cmd)
	}
	root.Args, root.RunE = cobra.ArbitraryArgs, choose
	return root
}

// complete offers the values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	// It fails for a flag that does not exist only, which a test finds.
	_ = cmd.RegisterFlagCompletionFunc(
		flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp),
	)
}

// harden makes each command check the shared flags first. It also makes an unknown subcommand an
// error instead of a request for help.
func (a *app) harden(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.harden(sub)
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, choose
		return
	}
	if cmd.RunE == nil {
		return
	}
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.begin(cmd.Context()); err != nil {
			return err
		}
		return inner(cmd, args)
	}
}

// choose is the error of a command that has subcommands only.
func choose(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(
			"%s has no command %q: see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath(),
		)
	}
	_ = cmd.Usage()
	return &exitError{exitUsage, nil}
}
