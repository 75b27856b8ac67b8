package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// placeFlags gives each verb the shared flags of the things that it uses. A verb that is not in the
// table of verbs has all flags.
func placeFlags(root *cobra.Command, all []sharedFlags) {
	eachVerb(root, func(cmd *cobra.Command) {
		v, known := verbs[verbName(cmd)]
		for _, s := range all {
			if !known || v.uses&s.of != 0 {
				cmd.Flags().AddFlagSet(s.set)
			}
		}
	})
	foretell(root, all)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var missing *pflag.NotExistError
		if errors.As(err, &missing) && isShared(all, missing) {
			return usage("%w: other verbs have this flag, %s has no use for it",
				err, cmd.CommandPath())
		}
		return &exitError{exitUsage, err}
	})
}

// foretell gives the commands with subcommands hidden copies of the flags. Flags may stand before a
// verb, and cobra finds the verb only if it knows which of them have a value.
func foretell(cmd *cobra.Command, all []sharedFlags) {
	if !cmd.HasSubCommands() {
		return
	}
	for _, s := range all {
		s.set.VisitAll(func(f *pflag.Flag) {
			hidden := *f
			hidden.Hidden = true
			cmd.Flags().AddFlag(&hidden)
		})
	}
	for _, sub := range cmd.Commands() {
		foretell(sub, all)
	}
}

// isShared reports whether another verb has the flag.
func isShared(all []sharedFlags, missing *pflag.NotExistError) bool {
	name := missing.GetSpecifiedName()
	for _, s := range all {
		if missing.GetSpecifiedShortnames() == "" && s.set.Lookup(name) != nil ||
			missing.GetSpecifiedShortnames() != "" && s.set.ShorthandLookup(name) != nil {
			return true
		}
	}
	return false
}
