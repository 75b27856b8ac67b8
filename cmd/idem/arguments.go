package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// complete offers the values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	// It fails for a flag that does not exist only, which a test finds.
	_ = cmd.RegisterFlagCompletionFunc(
		flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp),
	)
}

// completeShared offers the values of shared flags to the shell.
func completeShared(all []sharedFlags) {
	cmd := new(cobra.Command) // cobra keeps completions by flag, whichever command has the flag
	for _, s := range all {
		cmd.Flags().AddFlagSet(s.set)
	}
	complete(cmd, "output", outputs...)
	complete(cmd, "sasl-mechanism", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
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

// none refuses arguments.
func none(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if strings.Contains(
		args[0],
		"://",
	) { // idem migrate up --outbox postgres://..., as other verbs have it
		hint = "; a database is named by --store"
	}
	return usage("%s takes no arguments, it got %q%s", cmd.CommandPath(), args[0], hint)
}

// one wants exactly one argument.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%s wants one argument, %s; it got %d", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}
