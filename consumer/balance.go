package consumer

import (
	"maps"
	"slices"
	"strings"

	"github.com/IBM/sarama"
)

// sticky is what sarama's cooperative-sticky strategy can do.
type sticky interface {
	sarama.RebalanceProtocolBalanceStrategy
	sarama.SubscriptionUserDataBalanceStrategy
	sarama.OnAssignmentBalanceStrategy
}

// stickyByKind deals the partitions of source topics as the cooperative-sticky strategy does, and so those of each kind of
// retry topic by themselves. Dealt together they would all count the same, and one member could get a topic, another one
// its retry topics, where hardly anything happens. Members with another strategy of that name understand the plan.
type stickyByKind struct {
	sticky
	group string
}

func newSticky(group string) sarama.BalanceStrategy {
	s := sarama.NewBalanceStrategyCooperativeSticky()
	if able, ok := s.(sticky); ok {
		return stickyByKind{able, group}
	}
	return s
}

// Plan implements sarama.BalanceStrategy.
func (s stickyByKind) Plan(members map[string]sarama.ConsumerGroupMemberMetadata, topics map[string][]int32) (sarama.BalanceStrategyPlan, error) {
	kinds := make(map[string]map[string][]int32)
	for topic, ids := range topics {
		kind := ""
		if source, ok := sourceOf(topic, s.group); ok {
			kind = strings.TrimPrefix(topic, source)
		}
		if kinds[kind] == nil {
			kinds[kind] = make(map[string][]int32)
		}
		kinds[kind][topic] = ids
	}
	whole := make(sarama.BalanceStrategyPlan, len(members))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		plan, err := s.sticky.Plan(only(members, kinds[kind]), kinds[kind])
		if err != nil {
			return nil, err
		}
		for member, topics := range plan {
			for topic, ids := range topics {
				whole.Add(member, topic, ids...)
			}
		}
	}
	return whole, nil
}

// only returns what members say about those topics.
func only(members map[string]sarama.ConsumerGroupMemberMetadata, topics map[string][]int32) map[string]sarama.ConsumerGroupMemberMetadata {
	some := make(map[string]sarama.ConsumerGroupMemberMetadata, len(members))
	for id, m := range members {
		of := func(topic string) bool { return topics[topic] != nil }
		m.Topics = slices.DeleteFunc(slices.Clone(m.Topics), func(topic string) bool { return !of(topic) })
		m.OwnedPartitions = slices.DeleteFunc(slices.Clone(m.OwnedPartitions), func(o *sarama.OwnedPartition) bool { return !of(o.Topic) })
		if len(m.Topics) > 0 {
			some[id] = m
		}
	}
	return some
}
