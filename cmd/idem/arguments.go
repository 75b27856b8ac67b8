package main

import (
	"context"
	"math"
	"net"
	"strings"

	"github.com/spf13/cobra"
)

// complete offers the values of a flag to the shell. Commands that share a flag may call complete
// once each. A flag that does not exist is a mistake in this package: complete panics.
func complete(cmd *cobra.Command, flag string, values ...string) {
	if _, done := cmd.GetFlagCompletionFunc(flag); done {
		return
	}
	err := cmd.RegisterFlagCompletionFunc(
		flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp),
	)
	if err != nil {
		panic(err)
	}
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

// checkLimit refuses a --limit outside its bounds. A most of [math.MaxInt] is no bound.
func checkLimit(limit, least, most int) error {
	switch {
	case limit >= least && limit <= most:
		return nil
	case most == math.MaxInt:
		return usage("--limit must be at least %d", least)
	}
	return usage("--limit must be between %d and %d", least, most)
}

// checkAddress refuses the address of a flag for a listener, unless it is a host and a port. The
// host may be empty.
func checkAddress(ctx context.Context, flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return usage("--%s %q is no host:port, such as 127.0.0.1:8080 or :8080", flag, address)
	}
	if _, err := net.DefaultResolver.LookupPort(ctx, "tcp", port); err != nil {
		return usage("--%s %q: %q is no port, as in 127.0.0.1:8080", flag, address, port)
	}
	return nil
}
