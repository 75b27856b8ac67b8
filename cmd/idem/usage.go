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

// topicConnections is the topic of help that has the flags for the details of connections.
const topicConnections = "connections"

// ofConnection is the annotation of a flag that is for a detail of a connection.
const ofConnection = "idem_connection"

func isOfConnection(f *pflag.Flag) bool { return f.Annotations[ofConnection] != nil }

// newConnectionsTopic makes "idem help connections". It is no verb: every verb that connects to
// Kafka has these flags, and their completion.
func newConnectionsTopic(shared []sharedFlags) *cobra.Command {
	details := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, s := range shared {
		s.set.VisitAll(func(f *pflag.Flag) {
			if isOfConnection(f) {
				details.AddFlag(f)
			}
		})
	}
	return &cobra.Command{
		Use:   topicConnections,
		Short: "Flags for TLS and SASL to Kafka",
		Long: "Every verb that has --brokers has these flags too. Passwords and secrets come " +
			"from the environment\n" +
			"(IDEM_SASL_PASSWORD, IDEM_SASL_CLIENT_SECRET), never from a flag.\n" +
			"\n" +
			"Examples:\n" +
			"  idem lag --brokers kafka:9093 --tls --sasl-mechanism SCRAM-SHA-512 " +
			"--sasl-user ops\n" +
			"  idem lag --brokers kafka:9093 --tls-ca ca.pem --tls-cert ops.pem " +
			"--tls-key ops.key\n" +
			"\n" +
			"Flags:\n" + strings.TrimRight(details.FlagUsagesWrapped(helpWidth), "\n"),
	}
}

// usageOf returns the function that prints how a command is used: its own flags come first, then
// the shared ones, by the thing that they are for.
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
			if !cmd.HasParent() {
				fmt.Fprintf(&b, "TLS and SASL: idem help %s\n", topicConnections)
			}
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
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			sections = append(sections, sharedFlags{title: s.title, set: set})
		}
	}
	add := func(f *pflag.Flag) { sections[at[titles[f]]].set.AddFlag(f) }
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return sections
}

// writeFlags prints a section without the details of connections, which have a topic of their own.
func writeFlags(b *strings.Builder, s sharedFlags) {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	details := false
	s.set.VisitAll(func(f *pflag.Flag) {
		if isOfConnection(f) {
			details = details || !f.Hidden
			return
		}
		shown.AddFlag(f)
	})
	if shown.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s:\n%s", s.title, shown.FlagUsagesWrapped(helpWidth))
	}
	if details {
		fmt.Fprintf(b, "  TLS and SASL: idem help %s\n", topicConnections)
	}
}
