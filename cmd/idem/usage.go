package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the width of the descriptions of flags.
const helpWidth = 100

// usageOf returns the function that prints how a command is used: its own flags come first, then the
// shared ones, by the thing that they are for.
func usageOf(shared []sharedFlags) func(*cobra.Command) error {
	return func(cmd *cobra.Command) error {
		var b strings.Builder
		b.WriteString("Usage:\n")
		if cmd.Runnable() && !cmd.HasSubCommands() {
			fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
		}
		if cmd.HasAvailableSubCommands() {
			fmt.Fprintf(&b, "  %s <verb>\n\nVerbs:\n", cmd.CommandPath())
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() {
					fmt.Fprintf(&b, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
				}
			}
		}
		if cmd.HasExample() {
			fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
		}
		for _, s := range sectionsOf(cmd, shared) {
			writeFlags(&b, s)
		}
		if cmd.HasAvailableSubCommands() {
			fmt.Fprintf(&b, "\nMore: %s <verb> --help\n", cmd.CommandPath())
		}
		_, err := io.WriteString(cmd.OutOrStderr(), b.String())
		return err
	}
}

// sectionsOf sorts the flags of a command into sections, its own ones first.
func sectionsOf(cmd *cobra.Command, shared []sharedFlags) []sharedFlags {
	sections := []sharedFlags{{title: "Flags", set: pflag.NewFlagSet("", pflag.ContinueOnError)}}
	titles := map[*pflag.Flag]string{}
	at := map[string]int{"": 0}
	for _, s := range shared {
		s.set.VisitAll(func(f *pflag.Flag) { titles[f] = s.title })
		if _, seen := at[s.title]; !seen {
			at[s.title] = len(sections)
			sections = append(sections, sharedFlags{title: s.title, set: pflag.NewFlagSet("", pflag.ContinueOnError)})
		}
	}
	add := func(f *pflag.Flag) { sections[at[titles[f]]].set.AddFlag(f) }
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return sections
}

func writeFlags(b *strings.Builder, s sharedFlags) {
	if s.set.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s:\n%s", s.title, s.set.FlagUsagesWrapped(helpWidth))
	}
}
