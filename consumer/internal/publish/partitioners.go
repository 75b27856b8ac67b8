package publish

import (
	"slices"

	"github.com/IBM/sarama"
)

// partition is a partition of a topic.
type partition struct {
	topic string
	id    int32
}

// partitioners chooses partitions as sarama's producer does. It serves one goroutine at a time.
type partitioners struct {
	client  sarama.Client
	byTopic map[string]sarama.Partitioner
}

func newPartitioners(client sarama.Client) *partitioners {
	return &partitioners{client: client, byTopic: map[string]sarama.Partitioner{}}
}

// of returns the partitioner of a message. consistent reports whether the message has the same
// partition while some partitions cannot be written to.
func (p *partitioners) of(m *sarama.ProducerMessage) (chosen sarama.Partitioner, consistent bool) {
	chosen = p.byTopic[m.Topic]
	if chosen == nil {
		chosen = p.client.Config().Producer.Partitioner(m.Topic)
		p.byTopic[m.Topic] = chosen
	}
	if d, ok := chosen.(sarama.DynamicConsistencyPartitioner); ok {
		return chosen, d.MessageRequiresConsistency(m)
	}
	return chosen, chosen.RequiresConsistency()
}

// chooseKnown is choose for a message whose key decides. The result is false if the client has to
// ask brokers for the topic.
func (p *partitioners) chooseKnown(m *sarama.ProducerMessage) (at partition, ok bool) {
	if _, consistent := p.of(m); !consistent || m.Key == nil {
		return partition{}, false
	}
	known, err := p.client.Topics()
	if err != nil || !slices.Contains(known, m.Topic) {
		return partition{}, false
	}
	at, _, err = p.choose(m)
	return at, err == nil
}

// choose returns the partition of a message. fixed reports whether the key decides. The client asks
// brokers for a topic that it does not know.
func (p *partitioners) choose(m *sarama.ProducerMessage) (at partition, fixed bool, err error) {
	chosen, consistent := p.of(m)
	list := p.client.WritablePartitions
	if consistent {
		list = p.client.Partitions
	}
	all, err := list(m.Topic)
	if err != nil {
		return partition{}, false, err
	}
	if len(all) == 0 {
		return partition{}, false, sarama.ErrLeaderNotAvailable
	}
	n, err := chosen.Partition(m, int32(len(all)))
	if err != nil {
		return partition{}, false, err
	}
	if n < 0 || int(n) >= len(all) {
		return partition{}, false, sarama.ErrInvalidPartition
	}
	return partition{m.Topic, all[n]}, consistent && m.Key != nil, nil
}
