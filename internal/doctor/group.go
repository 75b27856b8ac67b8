package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/internal/groups"
	"github.com/idem-go/idem/internal/words"
)

// checkGroup checks the state and the members of the group.
func (k *kafkaDoctor) checkGroup(r *Findings) {
	on := "group " + k.in.Group
	described, err := k.admin.DescribeConsumerGroups([]string{k.in.Group})
	if err == nil && len(described) != 1 {
		err = sarama.ErrIncompleteResponse
	}
	if err == nil && !errors.Is(described[0].Err, sarama.ErrNoError) &&
		!errors.Is(described[0].Err, sarama.ErrGroupIDNotFound) {
		err = described[0].Err
	}
	if err != nil {
		k.blind(r, "kafka.group.state", on, err, "Describe", "--group "+k.in.Group)
		return
	}
	g := described[0]
	if len(g.Members) == 0 { // the classic request knows no group of the other protocol
		next, ok, err := groups.NextGeneration(k.client, k.in.Group)
		if err != nil {
			resource := "--group " + k.in.Group
			if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
				resource = "--topic <topic>" // Kafka does not name it
			}
			k.blind(r, "kafka.group.state", on, err, "Describe", resource)
			return
		}
		if ok {
			k.checkNextGeneration(r, on, &next)
			return
		}
	}
	k.checkState(r, on, g.State, len(g.Members), strings.HasSuffix(g.State, "Rebalance"))
	if len(g.Members) == 0 {
		r.say(Skipped, "kafka.group.strategy", on, "no members", "")
		r.say(Skipped, "kafka.group.subscription", on, "no members", "")
		return
	}
	k.checkStrategy(r, on, g)
	k.checkSubscription(r, on, g)
}

func (k *kafkaDoctor) checkState(r *Findings, on, state string, members int, unsettled bool) {
	r.choose("kafka.group.state", on,
		strings.ToLower(state)+", "+words.Plain(members, "member"),
		choice{unsettled, Warn,
			state + ": if this lasts for a minute, a member does not give its partitions back",
			k.tool("kafka-consumer-groups.sh", "--describe --group %s --members", k.in.Group)})
}

// checkNextGeneration checks a group of the protocol of KIP-848, which has no strategy of members.
func (k *kafkaDoctor) checkNextGeneration(
	r *Findings, on string, g *sarama.ConsumerGroupDescription,
) {
	k.checkState(r, on, g.GroupState, len(g.Members),
		g.GroupState == "Assigning" || g.GroupState == "Reconciling")
	r.say(Skipped, "kafka.group.strategy", on, "the brokers assign the partitions (KIP-848)", "")
	if len(g.Members) == 0 {
		r.say(Skipped, "kafka.group.subscription", on, "no members", "")
		return
	}
	consumed := map[string]bool{}
	for _, m := range g.Members {
		if m.SubscribedTopicRegex != nil && *m.SubscribedTopicRegex != "" {
			r.say(Unknown, "kafka.group.subscription", on, "a member subscribes by a pattern", "")
			return
		}
		for _, topic := range m.SubscribedTopicNames {
			consumed[topic] = true
		}
	}
	k.checkConsumed(r, on, consumed)
}

// checkStrategy compares the group's protocol with those of a worker (K-26).
func (k *kafkaDoctor) checkStrategy(r *Findings, on string, g *sarama.GroupDescription) {
	const cooperative, ranged = "cooperative-sticky", "range"
	offers := []string{cooperative, ranged}
	if k.opt.Cooperative {
		offers = offers[:1]
	}
	r.choose("kafka.group.strategy", on, g.Protocol,
		choice{g.ProtocolType != "consumer", Bad,
			fmt.Sprintf("the group is of type %q: no consumer can join", g.ProtocolType),
			"another --group"},
		choice{g.Protocol == "", Unknown, "the members have not agreed on a strategy yet", ""},
		choice{k.opt.Cooperative && g.Protocol == ranged, Bad,
			"the members use range, and a worker with Config.Cooperative offers " +
				"cooperative-sticky only: the worker cannot join, " +
				"or the members differ in strategy",
			"deploy all workers without Cooperative first, then with Cooperative"},
		choice{!slices.Contains(offers, g.Protocol), Bad,
			fmt.Sprintf("the members use %s, a worker offers %s: the worker cannot join",
				g.Protocol, strings.Join(offers, " and ")),
			"stop the members with that strategy, or use another group and Config.Scope"})
}

// checkSubscription finds topics that no member consumes.
func (k *kafkaDoctor) checkSubscription(r *Findings, on string, g *sarama.GroupDescription) {
	consumed := map[string]bool{}
	for _, m := range g.Members {
		meta, err := m.GetMemberMetadata()
		if err != nil || meta == nil {
			r.say(Unknown, "kafka.group.subscription", on,
				"a member's subscription cannot be read", "")
			return
		}
		for _, topic := range meta.Topics {
			consumed[topic] = true
		}
	}
	k.checkConsumed(r, on, consumed)
}

func (k *kafkaDoctor) checkConsumed(r *Findings, on string, consumed map[string]bool) {
	var idle []string
	for _, topic := range k.sources {
		if !consumed[topic] {
			idle = append(idle, topic)
		}
	}
	r.choose("kafka.group.subscription", on, "all of them",
		choice{len(idle) > 0, Warn, "no member consumes " + strings.Join(idle, ", "),
			"Config.Topics of the workers"})
}

// checkOffsets compares the committed offsets with the log.
func (k *kafkaDoctor) checkOffsets(r *Findings) {
	asked := k.there
	if len(asked) == 0 { // kafka.topic.missing has reported the topics
		return
	}
	on := "group " + k.in.Group
	committed, err := k.admin.ListConsumerGroupOffsets(k.in.Group, asked)
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		committed, err = &sarama.OffsetFetchResponse{}, nil
	}
	if err != nil {
		k.blind(r, "kafka.offsets.missing", on, err, "Describe", "--group "+k.in.Group)
		return
	}
	oldest, err1 := k.log(asked, sarama.OffsetOldest)
	newest, err2 := k.log(asked, sarama.OffsetNewest)
	if err := errors.Join(err1, err2); err != nil {
		k.blind(r, "kafka.offsets.gap", on, err, "Describe", "--topic <topic>")
		return
	}
	k.noOffsets = true
	for _, topic := range k.sources {
		if partitions, ok := asked[topic]; ok {
			k.compareOffsets(r, topic, partitions, committed, oldest[topic], newest[topic])
		}
	}
}

// log returns the oldest or the newest offset of each partition.
func (k *kafkaDoctor) log(asked map[string][]int32, end int64) (map[string]map[int32]int64, error) {
	want := map[string]map[int32]int64{}
	for topic, partitions := range asked {
		want[topic] = map[int32]int64{}
		for _, p := range partitions {
			want[topic][p] = end
		}
	}
	results, err := k.admin.ListOffsets(want, &sarama.ListOffsetsOptions{})
	if err != nil {
		return nil, err
	}
	for topic, partitions := range asked {
		for _, p := range partitions {
			o := results[topic][p]
			if o == nil {
				return nil, sarama.ErrIncompleteResponse
			}
			if o.Err != nil && !errors.Is(o.Err, sarama.ErrNoError) {
				return nil, fmt.Errorf("%s/%d: %w", topic, p, o.Err)
			}
			want[topic][p] = o.Offset
		}
	}
	return want, nil
}

func (k *kafkaDoctor) compareOffsets(
	r *Findings, topic string, partitions []int32, committed *sarama.OffsetFetchResponse,
	oldest, newest map[int32]int64,
) {
	var without, gaps []string
	var waiting, lost int64
	some := false
	for _, p := range partitions {
		block := committed.GetBlock(topic, p)
		switch {
		case block == nil || block.Offset < 0:
			if newest[p] > oldest[p] {
				without = append(without, fmt.Sprint(p))
				waiting += newest[p] - oldest[p]
			}
			continue
		case block.Offset < oldest[p]:
			gaps = append(gaps,
				fmt.Sprintf("%d: committed %d, the log starts at %d", p, block.Offset, oldest[p]))
			lost += oldest[p] - block.Offset
		case block.Offset > newest[p]:
			gaps = append(gaps, fmt.Sprintf("%d: committed %d, the log ends at %d "+
				"(was the topic deleted and created again?)", p, block.Offset, newest[p]))
		}
		some = true
		k.noOffsets = false
	}
	start := "the group has no committed offset, and starts at the oldest of"
	if some {
		start = "partitions " + strings.Join(without, ",") +
			" have no committed offset, and start at the oldest of"
	}
	r.choose("kafka.offsets.missing", topic, "all partitions with records have one, or none has",
		choice{len(without) > 0, Warn,
			fmt.Sprintf("%s %d records: if the records were handled before, the store must know "+
				"all of them", start, waiting),
			"Config.Scope of the group that handled the records, or Config.Start, " +
				"or set the offsets with kafka-consumer-groups.sh --reset-offsets"})
	r.choose("kafka.offsets.gap", topic, "the committed offsets are in the log",
		choice{len(gaps) > 0, Bad,
			fmt.Sprintf("partition %s; %d records are lost unread; a consumer stops there with "+
				"Config.OnGap Fail, the default", strings.Join(gaps, "; "), lost),
			"find the missing records, then Config.OnGap EarliestOnGap for one start, " +
				"or idem rewind"})
}
