package cells

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// group is the Kafka of one cell, with one record of the event in each partition.
type group struct {
	t          testing.TB
	name       string // of the group and of the topic
	partitions int32
	broker     string
	client     *kgo.Client
	kafka      *kafka
}

func newGroup(t testing.TB, name string, partitions int32, restarts bool) *group {
	t.Helper()
	k := startKafka(t, restarts, kfake.SeedTopics(partitions, name))
	g := &group{t: t, name: name, partitions: partitions, broker: k.addr, kafka: k}
	var err error
	g.client, err = kgo.NewClient(kgo.SeedBrokers(g.broker), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(g.client.Close)
	return g
}

// produce writes the event to each partition.
func (g *group) produce() {
	g.t.Helper()
	for p := range g.partitions {
		r := &kgo.Record{Topic: g.name, Partition: p, Value: fmt.Appendf(nil, `{"event_id":%q}`, g.name)}
		require.NoError(g.t, g.client.ProduceSync(g.t.Context(), r).FirstErr())
	}
}

// members returns the member IDs by the name of the worker, once the group is at rest.
func (g *group) members(ctx context.Context) (map[string]string, bool) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{g.name}
	resp, err := req.RequestWith(ctx, g.client)
	if err != nil || len(resp.Groups) != 1 {
		return nil, false
	}
	found := make(map[string]string)
	for _, m := range resp.Groups[0].Members {
		found[m.ClientID] = m.MemberID
	}
	return found, resp.Groups[0].State == "Stable"
}

// waitMembers waits until the group is at rest with n members.
func (g *group) waitMembers(n int) {
	g.t.Helper()
	require.Eventually(g.t, func() bool {
		found, stable := g.members(g.t.Context())
		return stable && len(found) == n
	}, 20*time.Second, 20*time.Millisecond, "the group does not have %d members", n)
}

// expel removes a worker from the group, as its coordinator does when heartbeats fail to come.
func (g *group) expel(name string) {
	g.t.Helper()
	found, _ := g.members(g.t.Context())
	if found[name] == "" {
		return // it has left
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = g.name
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = found[name]
	req.Members = append(req.Members, member)
	_, err := req.RequestWith(g.t.Context(), g.client)
	require.NoError(g.t, err)
}

// settled reports whether the offsets of all records are committed.
func (g *group) settled() bool {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = g.name
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic = g.name
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group = g.name
	byGroup := kmsg.NewOffsetFetchRequestGroupTopic()
	byGroup.Topic = g.name
	for p := range g.partitions {
		topic.Partitions = append(topic.Partitions, p)
		byGroup.Partitions = append(byGroup.Partitions, p)
	}
	asked.Topics = append(asked.Topics, byGroup)
	req.Topics, req.Groups = append(req.Topics, topic), append(req.Groups, asked)
	resp, err := req.RequestWith(g.t.Context(), g.client)
	if err != nil {
		return false
	}
	done := make(map[int32]bool) // an answer may be in both forms
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			done[p.Partition] = done[p.Partition] || p.Offset == 1
		}
	}
	for _, byGroup := range resp.Groups {
		for _, t := range byGroup.Topics {
			for _, p := range t.Partitions {
				done[p.Partition] = done[p.Partition] || p.Offset == 1
			}
		}
	}
	for p := range g.partitions {
		if !done[p] {
			return false
		}
	}
	return true
}

// deadLetters returns how many dead letters there are.
func (g *group) deadLetters() int64 {
	g.t.Helper()
	return recordsIn(g.t, g.client, g.name+"."+g.name+".dlq", g.partitions)
}

// recordsIn returns how many records a topic has.
func recordsIn(t testing.TB, client *kgo.Client, name string, partitions int32) (n int64) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = name
	for p := range partitions {
		asked := kmsg.NewListOffsetsRequestTopicPartition()
		asked.Partition, asked.Timestamp = p, -1
		topic.Partitions = append(topic.Partitions, asked)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), client)
	require.NoError(t, err)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			n += max(0, p.Offset)
		}
	}
	return n
}
