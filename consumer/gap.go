package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// gapGuard checks, before a session consumes, that the committed offsets are still in the log.
// Without this check sarama jumps without a report, or ends the session without naming the
// partition (K-17, K-18, K-28).
type gapGuard struct {
	cfg       Config
	log       *slog.Logger
	observers []observe.GapObserver
	client    sarama.Client
	lost      *lostOffsets
}

// check applies the policies to every partition of the session. With FailOnGap the error holds a
// *GapError for each gap.
func (g *gapGuard) check(sess sarama.ConsumerGroupSession) error {
	gaps, fresh, err := g.find(sess.Claims())
	if err != nil {
		return err
	}
	moved, err := g.lost.check(sess, fresh)
	if err != nil {
		return err
	}
	if len(gaps) == 0 && !moved {
		return nil
	}
	var errs []error
	for _, gap := range gaps {
		policy := g.policyOf(gap.Topic)
		g.report(gap, policy)
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

func (g *gapGuard) report(gap *GapError, policy GapPolicy) {
	g.log.Error("committed offset is no longer in the log",
		"topic", gap.Topic, "partition", gap.Partition, "committed", gap.Committed,
		"oldest", gap.Oldest, "newest", gap.Newest, "missing", gap.Missing(),
		"policy", policy.String())
	for _, o := range g.observers {
		o.ObserveGap(context.Background(), observe.GapEvent{
			Group: g.cfg.Group, Topic: gap.Topic, Partition: gap.Partition,
			Committed: gap.Committed, Oldest: gap.Oldest, Newest: gap.Newest,
			Policy: policy.String(),
		})
	}
}

// policyOf returns the configured policy, but skips no copy in a retry topic. A gap there means
// that some copies are lost, deleted before the due time or with the topic. All other copies must
// run, and the store knows which have run.
func (g *gapGuard) policyOf(topic string) GapPolicy {
	if p := g.cfg.OnGap; p != LatestOnGap || !runner.IsRetry(topic, g.cfg.Group) {
		return p
	}
	return EarliestOnGap
}

// moveOffset continues at another offset. Only a member can do this, because a group with members
// takes offsets from members only. The assignment begins after Setup, so at that offset.
func moveOffset(sess sarama.ConsumerGroupSession, gap *GapError, to int64) {
	if to > gap.Committed {
		sess.MarkOffset(gap.Topic, gap.Partition, to, "")
	} else {
		sess.ResetOffset(gap.Topic, gap.Partition, to, "")
	}
}

// find compares the committed offsets with the log, in the order of topic and partition. fresh are
// the partitions of source topics without a committed offset.
func (g *gapGuard) find(
	claims map[string][]int32,
) (gaps []*GapError, fresh map[partition]bool, err error) {
	if len(claims) == 0 {
		return nil, nil, nil
	}
	fresh = make(map[partition]bool)
	admin, err := sarama.NewClusterAdminFromClient(g.client) // closing it would close the client
	if err != nil {
		return nil, nil, fmt.Errorf("look for gaps: %w", err)
	}
	committed, err := admin.ListConsumerGroupOffsets(g.cfg.Group, claims)
	if err != nil {
		return nil, nil, fmt.Errorf("read committed offsets: %w", err)
	}
	for _, topic := range slices.Sorted(maps.Keys(claims)) {
		for _, id := range slices.Sorted(slices.Values(claims[topic])) {
			block := committed.GetBlock(topic, id)
			if block == nil {
				return nil, nil, fmt.Errorf("read committed offset of %s/%d: %w", topic, id,
					sarama.ErrIncompleteResponse)
			}
			if block.Err != sarama.ErrNoError {
				return nil, nil, fmt.Errorf("read committed offset of %s/%d: %w", topic, id,
					block.Err)
			}
			if block.Offset < 0 {
				if !runner.IsRetry(topic, g.cfg.Group) {
					fresh[partition{topic, id}] = true
				}
				continue // Config.Start decides where to begin
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
	return &GapError{
		Topic: topic, Partition: id, Committed: committed, Oldest: oldest, Newest: newest,
	}, nil
}
