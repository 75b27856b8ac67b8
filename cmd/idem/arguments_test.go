package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// verbsWith are the names of the verbs that have a flag.
func verbsWith(flag string) (names []string) {
	eachVerb(root(), func(cmd *cobra.Command) {
		if cmd.Flags().Lookup(flag) != nil {
			names = append(names, verbName(cmd))
		}
	})
	return names
}

// A negative --limit is refused by every verb, before any connection: it is not "no limit".
func TestNegativeLimits(t *testing.T) {
	verbs := verbsWith("limit")
	require.Subset(t, verbs, []string{"dlq export", "dlq ls", "dlq plan", "dlq replay", "event list", "outbox parked"})
	for _, verb := range verbs {
		command(t, append(strings.Fields(verb), "--limit", "-1")...).failed(t, exitUsage, "--limit must be")
	}
}

// A class that no dead letter can have is refused by every verb, with the classes that there are.
func TestUnknownClasses(t *testing.T) {
	verbs := verbsWith("class")
	require.Subset(t, verbs, []string{"dlq discard", "dlq export", "dlq ls", "dlq plan", "dlq replay"})
	for _, verb := range verbs {
		command(t, append(strings.Fields(verb), "--class", "failed,permanentt")...).failed(t, exitUsage, `"permanentt"`, "panic, permanent, retry-after")
	}
}
