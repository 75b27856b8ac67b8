package consumer

import (
	"maps"
	"slices"
	"strings"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/runner"
)

// sticky has the interfaces of sarama's cooperative-sticky strategy.
type sticky interface {
	sarama.RebalanceProtocolBalanceStrategy
	sarama.SubscriptionUserDataBalanceStrategy
	sarama.OnAssignmentBalanceStrategy
}

// stickyByKind assigns the partitions of source topics as the cooperative-sticky strategy does, and
// then those of each kind of retry topic separately. Assigned together, all partitions would count
// the same. One member could get a topic, and another only its retry topics with hardly any
// records. Members with another strategy of that name understand the plan.
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

// members is how sarama names the members of a group.
type members = map[string]sarama.ConsumerGroupMemberMetadata

// Plan implements sarama.BalanceStrategy.
func (s stickyByKind) Plan(
	all members, topics map[string][]int32,
) (sarama.BalanceStrategyPlan, error) {
	kinds := make(map[string]map[string][]int32)
	for topic, ids := range topics {
		kind := ""
		if source, ok := runner.SourceOf(topic, s.group); ok {
			kind = strings.TrimPrefix(topic, source)
		}
		if kinds[kind] == nil {
			kinds[kind] = make(map[string][]int32)
		}
		kinds[kind][topic] = ids
	}
	whole := make(sarama.BalanceStrategyPlan, len(all))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		plan, err := s.sticky.Plan(only(all, kinds[kind]), kinds[kind])
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

// only returns the members' subscriptions and partitions of those topics.
func only(all members, topics map[string][]int32) members {
	some := make(members, len(all))
	for id, m := range all {
		other := func(topic string) bool { return topics[topic] == nil }
		m.Topics = slices.DeleteFunc(slices.Clone(m.Topics), other)
		owned := slices.Clone(m.OwnedPartitions)
		m.OwnedPartitions = slices.DeleteFunc(owned, func(o *sarama.OwnedPartition) bool {
			return other(o.Topic)
		})
		if len(m.Topics) > 0 {
			some[id] = m
		}
	}
	return some
}
