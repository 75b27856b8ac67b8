package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// oldNameOf is the annotation of a flag with a former name.
const oldNameOf = "idem_old_name_of"

// oldName keeps a former name of a flag, which help does not show.
func oldName(f *pflag.FlagSet, old, name string) {
	former := *f.Lookup(name)
	former.Name, former.Shorthand, former.Hidden = old, "", true
	former.Annotations = map[string][]string{oldNameOf: {name}}
	f.AddFlag(&former)
}

// warnOfOldNames names the flags to use instead. pflag would write to standard output, where
// scripts expect the result.
func (a *app) warnOfOldNames(cmd *cobra.Command) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if now := f.Annotations[oldNameOf]; len(now) > 0 {
			fmt.Fprintf(a.stderr, "idem: --%s is the old name of --%s, and will be removed\n",
				f.Name, now[0])
		}
	})
}
