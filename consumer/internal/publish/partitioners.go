package publish

import (
	"github.com/IBM/sarama"
)

// partition is a partition of a topic.
type partition struct {
	topic string
	id    int32
}

// partitioners chooses partitions as sarama's producer does. It serves one goroutine at a time, and
// asks no broker.
type partitioners struct {
	conf    *sarama.Config
	byTopic map[string]sarama.Partitioner
}

func newPartitioners(conf *sarama.Config) *partitioners {
	return &partitioners{conf: conf, byTopic: map[string]sarama.Partitioner{}}
}

// of returns the partitioner of a message. consistent reports whether the message has the same
// partition while some partitions cannot be written to.
func (p *partitioners) of(m *sarama.ProducerMessage) (chosen sarama.Partitioner, consistent bool) {
	chosen = p.byTopic[m.Topic]
	if chosen == nil {
		chosen = p.conf.Producer.Partitioner(m.Topic)
		p.byTopic[m.Topic] = chosen
	}
	if d, ok := chosen.(sarama.DynamicConsistencyPartitioner); ok {
		return chosen, d.MessageRequiresConsistency(m)
	}
	return chosen, chosen.RequiresConsistency()
}

// fixed returns the partition of a message among all partitions of its topic. The result is false
// if the key does not decide, or if no partition is known.
func (p *partitioners) fixed(m *sarama.ProducerMessage, all []int32) (at partition, ok bool) {
	if _, consistent := p.of(m); !consistent || m.Key == nil {
		return partition{}, false
	}
	at, err := p.choose(m, all)
	return at, err == nil
}

// choose returns the partition of a message among these of its topic.
func (p *partitioners) choose(m *sarama.ProducerMessage, among []int32) (partition, error) {
	if len(among) == 0 {
		return partition{}, sarama.ErrLeaderNotAvailable
	}
	chosen, _ := p.of(m)
	n, err := chosen.Partition(m, int32(len(among)))
	if err != nil {
		return partition{}, err
	}
	if n < 0 || int(n) >= len(among) {
		return partition{}, sarama.ErrInvalidPartition
	}
	return partition{m.Topic, among[n]}, nil
}
