package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

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

// exitOf returns the exit code of an error, and its text. An error before the begin of a command is
// one of usage.
func (a *app) exitOf(err error) *exitError {
	other := exitFailure
	if !a.begun {
		other = exitUsage
	}
	var exit *exitError
	switch code, joined := codeOf(err, other); {
	case unlessDryRun(err) == nil:
		return nil
	case !joined && errors.As(err, &exit):
		return exit
	default:
		return &exitError{code, err}
	}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "idem",
		Short: "Inspect and correct events: stores, dead letters, offsets",
		Long: "Idem inspects and corrects events: stores, dead letters, offsets.\n" +
			"\n" +
			"Exit codes: 0 done; 1 done, with a bad result or a refused question; 2 wrong\n" +
			"flags or arguments; 3 failed, for example because a server was away.",
		Version:       versionOf(debug.ReadBuildInfo()).line(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddCommand(newEventCmd(a), newMigrateCmd(a), newReapCmd(a), newImportCmd(a))
	root.AddCommand(newDLQCmd(a), newRewindCmd(a), newLagCmd(a))
	root.AddCommand(newRelayCmd(a), newOutboxCmd(a), newDoctorCmd(a), newVersionCmd(a))
	root.AddCommand(newInitCmd(a), newScopeCmd(a), newOpsCmd(a))
	root.InitDefaultCompletionCmd()
	shared := a.sharedFlags()
	root.AddCommand(newConnectionsTopic(shared))
	placeFlags(root, shared)
	completeShared(shared)
	a.completeFlags(root)
	root.SetUsageFunc(usageOf(shared))
	eachVerb(root, func(cmd *cobra.Command) {
		if shell, ok := strings.CutPrefix(verbName(cmd), "completion "); ok {
			cmd.Example = "  idem completion " + shell
		}
	})
	for _, cmd := range root.Commands() {
		a.harden(cmd)
	}
	root.Args, root.RunE = cobra.ArbitraryArgs, choose
	hardenHelp(root)
	return root
}

// hardenHelp makes an unknown verb after "idem help" an error. Cobra prints the help of the last
// command that it knows. The help is no verb, so Execute adds it to the commands.
func hardenHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		root.RemoveCommand(help)
		help.Run = nil
		help.RunE = func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			switch {
			case err != nil:
				return usage("%w", err)
			case len(rest) > 0:
				return choose(cmd, rest)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		}
	}
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
		a.wasGiven = cmd.Flags().Changed
		if err := a.begin(cmd.Context(), cmd.Flags().Lookup("audit-file") != nil); err != nil {
			return err
		}
		a.warnOfOldNames(cmd)
		err := inner(cmd, args)
		a.auditEnd(verbName(cmd), err)
		return err
	}
}
