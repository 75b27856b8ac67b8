package watermill

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem/dedup"
)

// TestPubSub_Kafka runs Watermill's tests of Pub/Subs on its Pub/Sub for Kafka. The messages pass
// through each part of the adapter. Members of a group share a store. The Kafka runs inside the
// process.
//
// ExactlyOnceDelivery is not set: Watermill would skip TestConcurrentClose and
// TestContinueAfterSubscribeClose. Instead, a message that comes again after its Ack fails the
// test. TestReconnect and TestNewSubscriberReceivesOldMessages are skipped. The first restarts a
// broker, which is a matter of the client. The second wants subscribers without a consumer group,
// and a message that several subscribers handle is not the adapter's promise.
func TestPubSub_Kafka(t *testing.T) {
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(4), kfake.AllowAutoTopicCreation(),
				kfake.GroupMinSessionTimeout(time.Second))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			store, seen := newStore(), new(acked)
			ofGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
				return open(t, cluster.ListenAddrs(), group, &subscriber{
					t: t, part: part, acked: seen,
					scope: func(topic string) (dedup.Store, string) { return store, group + " of " + topic },
				})
			}
			tests.TestPubSub(t, tests.Features{
				ConsumerGroups: true, GuaranteedOrder: true, Persistent: true, ForceShort: true,
			}, func(t *testing.T) (message.Publisher, message.Subscriber) {
				return ofGroup(t, t.Name())
			}, ofGroup)
		})
	}
}

// open returns a Pub/Sub of a group. Its messages pass through s.
func open(t *testing.T, brokers []string, group string, s *subscriber) (message.Publisher, message.Subscriber) {
	marshaler := kafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) {
		return string(m.Payload), nil // order holds for equal payloads
	})
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: brokers, Marshaler: marshaler}, watermill.NopLogger{})
	require.NoError(t, err)
	sc := kafka.DefaultSaramaSubscriberConfig()
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.MaxWaitTime = 100 * time.Millisecond
	sc.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	s.Subscriber, err = kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: brokers, ConsumerGroup: group, Unmarshaler: marshaler, OverwriteSaramaConfig: sc,
		InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1},
		NackResendSleep:        10 * time.Millisecond, ReconnectRetrySleep: 100 * time.Millisecond,
	}, watermill.NopLogger{})
	require.NoError(t, err)
	return pub, s
}
