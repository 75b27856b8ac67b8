package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// gapGuard looks, before a session consumes, whether the committed offsets are still in the log. sarama jumps in silence
// otherwise, or ends the session without saying which partition is to blame (K-17, K-18, K-28).
type gapGuard struct {
	h      *GroupHandler
	client sarama.Client
}

// check applies the policy to every claim of the session. With Fail the error holds a *GapError for each gap.
func (g *gapGuard) check(sess sarama.ConsumerGroupSession) error {
	gaps, fresh, err := g.find(sess.Claims())
	if err != nil {
		return err
	}
	moved, err := g.lostOffsets(sess, fresh)
	if err != nil {
		return err
	}
	if len(gaps) == 0 && !moved {
		return nil
	}
	var errs []error
	for _, gap := range gaps {
		policy := g.policy(gap.Topic)
		g.h.log.Error("committed offset is no longer in the log", "topic", gap.Topic, "partition", gap.Partition,
			"committed", gap.Committed, "oldest", gap.Oldest, "newest", gap.Newest, "missing", gap.Missing(), "policy", policy.String())
		for _, o := range g.h.obs.gap {
			o.ObserveGap(context.Background(), idem.GapEvent{
				Group: g.h.cfg.Group, Topic: gap.Topic, Partition: gap.Partition, Committed: gap.Committed, Oldest: gap.Oldest,
				Newest: gap.Newest, Policy: policy.String(),
			})
		}
		switch policy {
		case EarliestOnGap:
			moveOffset(sess, gap, gap.Oldest)
		case LatestOnGap:
			moveOffset(sess, gap, gap.Newest)
		default:
			errs = append(errs, gap)
		}
	}
	if len(errs) == 0 {
		sess.Commit()
	}
	return errors.Join(errs...)
}

// policy is the configured one; but of copies that the group wrote itself none is skipped: that there is a gap says that
// some are lost (deleted before they were due, or with their topic), not that the others may be. The store knows which of
// them ran.
func (g *gapGuard) policy(topic string) GapPolicy {
	if p := g.h.cfg.OnGap; p != LatestOnGap || !isRetryTopic(topic, g.h.cfg.Group) {
		return p
	}
	return EarliestOnGap
}

// moveOffset goes on elsewhere. Only a member of the group can, as a group that is not empty takes offsets from its members
// only; and the claim, which begins after Setup, begins there.
func moveOffset(sess sarama.ConsumerGroupSession, gap *GapError, to int64) {
	if to > gap.Committed {
		sess.MarkOffset(gap.Topic, gap.Partition, to, "")
	} else {
		sess.ResetOffset(gap.Topic, gap.Partition, to, "")
	}
}

// find compares what is committed with the log, in the order of topic and partition. fresh are the partitions of source topics
// of which nothing is.
func (g *gapGuard) find(claims map[string][]int32) (gaps []*GapError, fresh map[partition]bool, err error) {
	if len(claims) == 0 {
		return nil, nil, nil
	}
	fresh = make(map[partition]bool)
	admin, err := sarama.NewClusterAdminFromClient(g.client) // closing it would close the client
	if err != nil {
		return nil, nil, fmt.Errorf("look for gaps: %w", err)
	}
	committed, err := admin.ListConsumerGroupOffsets(g.h.cfg.Group, claims)
	if err != nil {
		return nil, nil, fmt.Errorf("read committed offsets: %w", err)
	}
	for _, topic := range slices.Sorted(maps.Keys(claims)) {
		for _, id := range slices.Sorted(slices.Values(claims[topic])) {
			block := committed.GetBlock(topic, id)
			if block == nil {
				return nil, nil, fmt.Errorf("read committed offset of %s/%d: %w", topic, id, sarama.ErrIncompleteResponse)
			}
			if block.Err != sarama.ErrNoError {
				return nil, nil, fmt.Errorf("read committed offset of %s/%d: %w", topic, id, block.Err)
			}
			if block.Offset < 0 {
				if !isRetryTopic(topic, g.h.cfg.Group) {
					fresh[partition{topic, id}] = true
				}
				continue // none yet: Start says where to begin
			}
			gap, err := g.compare(topic, id, block.Offset)
			if err != nil {
				return nil, nil, err
			}
			if gap != nil {
				gaps = append(gaps, gap)
			}
		}
	}
	return gaps, fresh, nil
}

func sortedPartitions[V any](of map[partition]V) []partition {
	return slices.SortedFunc(maps.Keys(of), func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.id, b.id))
	})
}

func (g *gapGuard) compare(topic string, id int32, committed int64) (*GapError, error) {
	oldest, err := g.client.GetOffset(topic, id, sarama.OffsetOldest)
	if err != nil {
		return nil, fmt.Errorf("read the oldest offset of %s/%d: %w", topic, id, err)
	}
	newest, err := g.client.GetOffset(topic, id, sarama.OffsetNewest)
	if err != nil {
		return nil, fmt.Errorf("read the newest offset of %s/%d: %w", topic, id, err)
	}
	if committed >= oldest && committed <= newest {
		return nil, nil
	}
	return &GapError{Topic: topic, Partition: id, Committed: committed, Oldest: oldest, Newest: newest}, nil
}
