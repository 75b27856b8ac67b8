package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/internal/conns"
	"github.com/idem-go/idem/runner"
)

// directCommits commits offsets on a connection of its own and returns the broker's answer. During
// a cooperative rebalance sarama holds commits back until the rejoin is answered. The brokers
// accept commits: the generation of a member is valid until all members have joined the next one.
type directCommits struct {
	group  string
	client sarama.Client
	config *sarama.Config
}

func newDirectCommits(group string, client sarama.Client) *directCommits {
	config := *client.Config()
	config.Net.ReadTimeout = min(config.Net.ReadTimeout, runner.CommitWait)
	config.Net.WriteTimeout = min(config.Net.WriteTimeout, runner.CommitWait)
	return &directCommits{group: group, client: client, config: &config}
}

// send commits and returns the partitions that the coordinator refused. An error means that there
// was no answer. The end of ctx closes the connection. Partitions of deleted topics are left out,
// since no event there can be delivered again (K-27).
func (d *directCommits) send(
	ctx context.Context, sess sarama.ConsumerGroupSession, offsets map[runner.TopicPartition]int64,
) (map[runner.TopicPartition]error, error) {
	coordinator, err := d.client.Coordinator(d.group)
	if err != nil {
		return nil, err
	}
	own := conns.New(d.config)
	defer context.AfterFunc(ctx, own.Cut)()
	broker := sarama.NewBroker(coordinator.Addr())
	if err := broker.Open(own.Config(d.config)); err != nil {
		return nil, err
	}
	defer broker.Close() // after the answer, or an error
	answer, err := broker.CommitOffset(d.request(sess, offsets))
	if err != nil {
		return nil, err
	}
	refused := make(map[runner.TopicPartition]error)
	unknown := make(map[string][]runner.TopicPartition)
	moved := false
	for p := range offsets {
		code, ok := answer.Errors[p.Topic][p.Partition]
		switch {
		case !ok:
			refused[p] = sarama.ErrIncompleteResponse
		case !errors.Is(code, sarama.ErrNoError):
			refused[p] = code
			if errors.Is(code, sarama.ErrUnknownTopicOrPartition) {
				unknown[p.Topic] = append(unknown[p.Topic], p)
			}
			moved = moved || isAny(code, sarama.ErrNotCoordinatorForConsumer,
				sarama.ErrConsumerCoordinatorNotAvailable)
		}
	}
	for _, topic := range d.deleted(broker, unknown) {
		for _, p := range unknown[topic] {
			delete(refused, p)
		}
	}
	if moved {
		return refused, d.client.RefreshCoordinator(d.group)
	}
	return refused, nil
}

// deleted returns the topics that do not exist according to the broker. Without an answer the list
// is empty.
func (d *directCommits) deleted(
	broker *sarama.Broker, topics map[string][]runner.TopicPartition,
) (missing []string) {
	if len(topics) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(topics))
	answer, err := broker.GetMetadata(sarama.NewMetadataRequest(d.config.Version, names))
	if err != nil {
		return nil
	}
	for _, t := range answer.Topics {
		if errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition) {
			missing = append(missing, t.Name)
		}
	}
	return missing
}

// request has the version that the configured version of Kafka knows, like sarama's own commits.
func (d *directCommits) request(
	sess sarama.ConsumerGroupSession, offsets map[runner.TopicPartition]int64,
) *sarama.OffsetCommitRequest {
	r := &sarama.OffsetCommitRequest{
		Version: 2, ConsumerGroup: d.group, ConsumerID: sess.MemberID(),
		ConsumerGroupGeneration: sess.GenerationID(), RetentionTime: -1,
	}
	for _, known := range []struct {
		since   sarama.KafkaVersion
		version int16
	}{{sarama.V2_1_0_0, 6}, {sarama.V2_3_0_0, 7}, {sarama.V2_4_0_0, 8}} {
		if d.config.Version.IsAtLeast(known.since) {
			r.Version = known.version
		}
	}
	if id := d.config.Consumer.Group.InstanceId; id != "" && r.Version >= 7 {
		r.GroupInstanceId = &id
	}
	for p, offset := range offsets {
		r.AddBlockWithLeaderEpoch(p.Topic, p.Partition, offset, noEpoch, 0, "")
	}
	return r
}
