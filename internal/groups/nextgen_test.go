package groups

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/internal/testenv"
)

// joinNextGeneration lets a member of the protocol of KIP-848 read a topic until the test ends.
func joinNextGeneration(t *testing.T, brokers []string, group, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic), kgo.ClientID("worker-7"), kgo.InstanceID("billing-0"),
		kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			client.PollFetches(ctx)
		}
	}()
	t.Cleanup(func() { cancel(); <-done; client.Close() })
}

// A running group of the protocol of KIP-848 has members, although the classic request shows none.
func TestMembersOfTheNextGeneration(t *testing.T) {
	p := newPlace(t, 2, "orders")
	joinNextGeneration(t, p.cluster.ListenAddrs(), "g", "orders")
	require.Eventually(t, func() bool {
		members, err := Members(p.client, "g")
		require.NoError(t, err)
		return len(members) == 1 && members[0].Instance == "billing-0"
	}, 20*time.Second, 20*time.Millisecond)
	s := lagOf(t, p.reader(), Query{Group: "g"})
	require.NoError(t, s.MembersErr)
	require.Len(t, s.Members, 1)
	require.Contains(t, s.Members[0].Client, "worker-7")
	require.Empty(t, s.Missing)

	members, err := Members(p.client, "nobody")
	require.NoError(t, err)
	require.Empty(t, members)
}

// Each answer about the next generation is told apart: no such group, brokers without the
// protocol, members, and a failure, after which the members are not known.
func TestMembersOfTheNextGeneration_Answers(t *testing.T) {
	instance := "billing-0"
	member := kmsg.ConsumerGroupDescribeResponseGroupMember{
		ClientID: "worker-7", ClientHost: "/10.0.0.7", InstanceID: &instance,
		Assignment: kmsg.Assignment{TopicPartitions: []kmsg.AssignmentTopicPartition{
			{Topic: "orders", Partitions: []int32{0, 2}}, {Topic: "payments", Partitions: []int32{1}},
		}},
	}
	for name, test := range map[string]struct {
		code    int16
		members []kmsg.ConsumerGroupDescribeResponseGroupMember
		want    []Member
		err     error
		says    string
	}{
		"members": {members: []kmsg.ConsumerGroupDescribeResponseGroupMember{member}, want: []Member{{
			Client: "worker-7 /10.0.0.7", Instance: "billing-0",
			Assigned: map[string][]int32{"orders": {0, 2}, "payments": {1}},
		}}},
		"empty":       {},
		"no group":    {code: kerr.GroupIDNotFound.Code},
		"old brokers": {code: kerr.UnsupportedVersion.Code},
		"no right": {
			code: kerr.GroupAuthorizationFailed.Code, err: sarama.ErrGroupAuthorizationFailed,
			says: "grant Describe",
		},
		"no right on a topic": {
			code: kerr.TopicAuthorizationFailed.Code, err: sarama.ErrTopicAuthorizationFailed,
			says: "grant Describe on all topics that the group reads",
		},
		"moved": {code: kerr.NotCoordinator.Code, err: sarama.ErrNotCoordinatorForConsumer, says: "group g"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, 1, "orders")
			p.cluster.ControlKey(int16(kmsg.ConsumerGroupDescribe), func(req kmsg.Request) (kmsg.Response, error, bool) {
				resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
				resp.Groups = []kmsg.ConsumerGroupDescribeResponseGroup{
					{Group: "g", ErrorCode: test.code, Members: test.members},
				}
				return resp, nil, true
			})
			members, err := Members(p.client, "g")
			require.ErrorIs(t, err, test.err)
			if test.err != nil {
				require.ErrorContains(t, err, test.says)
			}
			require.Equal(t, test.want, members)
		})
	}
}

// TestLag_TopicOfTheNextGeneration: the user may not describe a topic of the group. Kafka 4 tells no
// members then, and another request would not help.
func TestLag_TopicOfTheNextGeneration(t *testing.T) {
	p := newPlace(t, 1, "orders")
	p.commit("g", "orders", map[int32]int64{0: 0})
	var asked atomic.Int64
	p.cluster.ControlKey(int16(kmsg.ConsumerGroupDescribe), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.cluster.KeepControl()
		asked.Add(1)
		resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		resp.Groups = []kmsg.ConsumerGroupDescribeResponseGroup{
			{Group: "g", ErrorCode: kerr.TopicAuthorizationFailed.Code},
		}
		return resp, nil, true
	})
	s := lagOf(t, p.reader(), Query{Group: "g"})
	require.ErrorIs(t, s.MembersErr, sarama.ErrTopicAuthorizationFailed)
	require.EqualValues(t, 1, asked.Load())
	require.NotEmpty(t, s.Partitions)
}

// A real Kafka names the members of the next generation, and their partitions.
func TestMembersOfTheNextGeneration_OnKafka(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 3)
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	group := topic + "-g"
	members, err := Members(client, group)
	require.NoError(t, err)
	require.Empty(t, members)
	joinNextGeneration(t, brokers, group, topic)
	require.Eventually(t, func() bool {
		members, err := Members(client, group)
		require.NoError(t, err)
		return len(members) == 1 && len(members[0].Assigned[topic]) == 3
	}, 30*time.Second, 100*time.Millisecond)
}
