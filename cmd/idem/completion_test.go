package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem/internal/testenv"
)

// offered returns the words that the shell gets for a command line.
func offered(t *testing.T, line string) []string {
	t.Helper()
	out := command(t, append([]string{cobra.ShellCompRequestCmd}, strings.Split(line, " ")...)...).ok(t)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Equal(t, ":4", lines[len(lines)-1], line)
	return lines[:len(lines)-1]
}

// Every class of dead letters is offered.
func TestCompletionOfClasses(t *testing.T) {
	text, err := os.ReadFile("../../idemtype/class.go")
	require.NoError(t, err)
	var declared []string
	for _, m := range regexp.MustCompile(`Class = "([a-z-]+)"`).FindAllStringSubmatch(string(text), -1) {
		declared = append(declared, m[1])
	}
	slices.Sort(declared)
	require.Equal(t, declared, slices.Sorted(slices.Values(classNames())))
	require.Equal(t, classNames(), offered(t, "dlq ls --class "))
}

// Topics and groups are those of Kafka. Verbs for dead letters offer topics that have some.
func TestCompletionFromKafka(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "orders.g.dlq", "orders.g.retry", "orders.g.retry.5s", "payments"))
	require.NoError(t, err)
	defer cluster.Close()
	client, err := sarama.NewClient(cluster.ListenAddrs(), testenv.KafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, setOffsets(client, "billing", []rewindRow{{Topic: "orders", Committed: 1}}))
	brokers := " --brokers " + strings.Join(cluster.ListenAddrs(), ",")
	for line, want := range map[string][]string{
		"rewind -G g" + brokers + " --topic ":                {"orders", "payments"},
		"rewind -G g" + brokers + " --topic pay":             {"payments"},
		"import" + brokers + " --from-topic o":               {"orders"},
		"doctor" + brokers + " --topics ":                    {"orders", "payments"},
		"dlq ls -G g" + brokers + " --topic ":                {"orders"},
		"dlq ls" + brokers + " --topic ":                     {"orders"},
		"dlq ls -G other" + brokers + " --topic ":            {},
		"dlq plan" + brokers + " --dlq ":                     {"orders.g.dlq"},
		"lag" + brokers + " --group ":                        {"billing"},
		"lag --group ":                                       {},
		"lag --brokers " + testenv.FreeAddr(t) + " --group ": {},
		"event get --brokers x --sasl-mechanism PLAIN -G ":   {},
		"dlq ls --brokers " + testenv.FreeAddr(t) + " -t ":   {},
	} {
		begin := time.Now()
		require.ElementsMatch(t, want, offered(t, line), line)
		require.Less(t, time.Since(begin), 5*time.Second, line)
	}
}
