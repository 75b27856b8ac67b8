package soak

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// group is the topic of a line, and the group of the same name.
type group struct {
	t      testing.TB
	name   string
	client sarama.Client
	admin  sarama.ClusterAdmin
}

func newGroup(t testing.TB, brokers []string, name string) *group {
	t.Helper()
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	require.NoError(t, err)
	g := &group{t: t, name: name, client: client, admin: admin}
	require.NoError(t, admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
	t.Cleanup(func() {
		_ = admin.DeleteTopic(name) // names are used once
		_ = admin.DeleteTopic(g.deadLetterTopic())
		_ = admin.DeleteConsumerGroup(name)
		_ = admin.Close() // and the client
	})
	testenv.WaitTopic(t, client, name, partitions)
	return g
}

func (g *group) deadLetterTopic() string { return g.name + "." + g.name + ".dlq" }

// committed returns the committed offsets, or an error while the coordinator moves.
func (g *group) committed() (offsets [partitions]int64, err error) {
	all := make([]int32, partitions)
	for p := range all {
		all[p] = int32(p) //nolint:gosec // below partitions
	}
	reply, err := g.admin.ListConsumerGroupOffsets(g.name, map[string][]int32{g.name: all})
	if err != nil {
		return offsets, err
	}
	if reply.Err != sarama.ErrNoError {
		return offsets, reply.Err
	}
	for _, p := range all {
		if b := reply.GetBlock(g.name, p); b != nil {
			offsets[p] = max(b.Offset, 0)
		}
	}
	return offsets, nil
}

// deadLetters returns the reasons of the dead letters that the group has written, some of them at
// most. Without the topic there are no dead letters.
func (g *group) deadLetters() (reasons []string) {
	g.t.Helper()
	require.NoError(g.t, g.client.RefreshMetadata())
	topics, err := g.client.Topics()
	require.NoError(g.t, err)
	if !slices.Contains(topics, g.deadLetterTopic()) {
		return nil
	}
	ids, err := g.client.Partitions(g.deadLetterTopic())
	require.NoError(g.t, err)
	consumer, err := sarama.NewConsumerFromClient(g.client)
	require.NoError(g.t, err)
	for _, id := range ids {
		end, err := g.client.GetOffset(g.deadLetterTopic(), id, sarama.OffsetNewest)
		require.NoError(g.t, err)
		if end == 0 || len(reasons) >= most {
			continue
		}
		records, err := consumer.ConsumePartition(g.deadLetterTopic(), id, 0)
		require.NoError(g.t, err)
		for range min(end, most) {
			r := <-records.Messages()
			var text strings.Builder
			for _, h := range r.Headers {
				fmt.Fprintf(&text, "%s=%s ", h.Key, h.Value)
			}
			reasons = append(reasons, text.String())
		}
		require.NoError(g.t, records.Close())
	}
	return reasons
}
