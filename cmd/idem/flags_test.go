package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// A verb has the shared flags of the things that it uses, and refuses those of others.
func TestFlagsOfVerbs(t *testing.T) {
	all := []string{"group", "scope", "store", "schema", "redis-prefix", "brokers", "tls", "output", "yes", "audit-file"}
	for verb, want := range map[string]string{
		"event get":     "group scope store schema redis-prefix brokers tls output",
		"event release": "group scope store schema redis-prefix output yes audit-file",
		"dlq ls":        "group scope brokers tls output",
		"lag":           "group brokers tls output",
		"migrate up":    "store schema output audit-file",
		"outbox parked": "store schema output",
		"reap":          "store schema output yes audit-file",
		"relay":         "store schema brokers tls output",
		"version":       "output",
		"init":          "",
	} {
		cmd, _, err := root().Find(strings.Fields(verb))
		require.NoError(t, err)
		for _, name := range all {
			require.Equal(t, slices.Contains(strings.Fields(want), name), cmd.Flags().Lookup(name) != nil, "%s --%s", verb, name)
		}
	}
}

// A flag that a verb does not use is a mistake, which names the verb.
func TestFlagsOfOtherVerbs(t *testing.T) {
	for args, says := range map[string]string{
		"version --store redis://h":         "unknown flag: --store: other verbs have this flag, idem version has no use",
		"reap -G g":                         "'G' in -G: other verbs have this flag, idem reap has no use",
		"event list --brokers h:1":          "idem event list has no use for it",
		"--tls event list":                  "idem event list has no use for it",
		"-y dlq ls --topic t":               "idem dlq ls has no use for it",
		"outbox status --redis-prefix idem": "idem outbox status has no use for it",
		"lag --nothing":                     "unknown flag: --nothing\n",
	} {
		command(t, strings.Fields(args)...).failed(t, exitUsage, says)
	}
}

// A shared flag may stand before the verb, with its value or without one.
func TestFlagsBeforeTheVerb(t *testing.T) {
	_, known := memory()
	for _, args := range []string{
		"-G billing -y --store mem://store --audit-file /dev/null event release 1 --type order",
		"event -y --store=mem://store release 1 --type order -G billing",
	} {
		commandWith(t, known, "", strings.Fields(args)...).failed(t, exitFound, "1")
	}
}

// The environment counts for all verbs, also for those without the flag.
func TestEnvironmentOfAllVerbs(t *testing.T) {
	for _, name := range []string{"IDEM_GROUP", "IDEM_SCOPE", "IDEM_STORE", "IDEM_SCHEMA", "IDEM_REDIS_PREFIX", "IDEM_BROKERS", "IDEM_OUTBOX", "IDEM_SASL_USER"} {
		t.Setenv(name, "canary")
	}
	command(t, "version").ok(t)
	command(t, "migrate", "print").ok(t)
}

// Help shows the flags of the verb before the shared ones.
func TestHelpBeginsWithFlagsOfTheVerb(t *testing.T) {
	topic := command(t, "help", topicConnections).ok(t)
	eachVerb(root(), func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		help := cmd.UsageString()
		at := strings.Index(help, "\nFlags:\n")
		require.Positive(t, at, help)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			line := regexp.MustCompile(`(?m)^  (    |-\w, )--` + f.Name + " ")
			switch {
			case f.Hidden:
			case isOfConnection(f):
				require.Empty(t, line.FindAllString(help, -1), "%s --%s", cmd.CommandPath(), f.Name)
				require.Len(t, line.FindAllString(topic, -1), 1, f.Name)
				require.Contains(t, help, "idem help connections")
			default:
				require.Len(t, line.FindAllString(help[at:], -1), 1, "%s --%s", cmd.CommandPath(), f.Name)
			}
		})
		before := at
		for _, title := range []string{titleStores, titleKafka, titleOutput} {
			if i := strings.Index(help, title+":"); i >= 0 {
				require.Greater(t, i, before, "%s: %s", cmd.CommandPath(), title)
				before = i
			}
		}
	})
}

// The flags for details of connections are not in the help of verbs, and work and complete there.
func TestFlagsOfConnections(t *testing.T) {
	kafka := root().Flags() // hidden copies of all shared flags
	for _, name := range []string{"tls", "tls-ca", "tls-cert", "tls-key", "sasl-mechanism", "sasl-user",
		"sasl-token-file", "sasl-token-url", "allow-insecure"} {
		require.True(t, isOfConnection(kafka.Lookup(name)), name)
		require.Contains(t, command(t, "__complete", "lag", "--"+name).ok(t), "--"+name)
	}
	require.False(t, isOfConnection(kafka.Lookup("brokers")))
	require.Less(t, strings.Count(command(t, "lag", "--help").ok(t), "\n"), 35)
	require.Contains(t, command(t, "--help").ok(t), "idem help connections")
	require.NotContains(t, command(t, "version", "--help").ok(t), "connections")
	t.Setenv("IDEM_SASL_USER", "canary")
	require.NotContains(t, command(t, "help", "connections").ok(t), "canary", "the environment is not shown")
}
