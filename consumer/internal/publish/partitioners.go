package publish

import "github.com/IBM/sarama"

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

// choose returns the partition of a message. fixed reports whether the key decides.
func (p *partitioners) choose(m *sarama.ProducerMessage) (at partition, fixed bool, err error) {
	chosen := p.byTopic[m.Topic]
	if chosen == nil {
		chosen = p.client.Config().Producer.Partitioner(m.Topic)
		p.byTopic[m.Topic] = chosen
	}
	consistent := chosen.RequiresConsistency()
	if d, ok := chosen.(sarama.DynamicConsistencyPartitioner); ok {
		consistent = d.MessageRequiresConsistency(m)
	}
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
