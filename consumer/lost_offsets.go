package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/dedup"
)

// lostOffsets acts on partitions without a committed offset that, according to a store, the scope
// has consumed.
type lostOffsets struct {
	cfg    Config
	log    *slog.Logger
	client sarama.Client
	stores []dedup.Store
}

// check marks the recorded positions of fresh partitions if the policy is ResumeLost, and reports
// whether any was marked. Retry topics are not checked: the group reads them from the oldest record
// in any case, and the store knows which copies ran.
func (l *lostOffsets) check(
	sess sarama.ConsumerGroupSession, fresh map[partition]bool,
) (moved bool, err error) {
	policy := l.cfg.OnLostOffsets
	if policy == RefuseLost && l.cfg.Scope != l.cfg.Group {
		policy = StartLost
	}
	if len(fresh) == 0 || policy == StartLost {
		return false, nil
	}
	known, err := l.recorded(sess.Context(), fresh)
	if err != nil {
		return false, err
	}
	if known, err = l.inLog(known); err != nil || len(known) == 0 {
		return false, err
	}
	l.log.Error("committed offsets are gone, but the store has the progress on record",
		"scope", l.cfg.Scope,
		"partitions", len(known), "policy", policy.String())
	if policy == RefuseLost {
		return false, &OffsetsLostError{Scope: l.cfg.Scope, Known: known}
	}
	for _, p := range known {
		oldest, err := l.client.GetOffset(p.Topic, p.Partition, sarama.OffsetOldest)
		if err != nil {
			return false, fmt.Errorf("read the oldest offset of %s/%d: %w",
				p.Topic, p.Partition, err)
		}
		sess.MarkOffset(p.Topic, p.Partition, max(p.Next, oldest), "")
	}
	return true, nil
}

// inLog leaves out partitions with a log that ends before the recorded position. The topic was made
// anew and Kafka has dropped the old offsets. Such a partition begins at Config.Start, and the
// store recognises the events that are still on record.
func (l *lostOffsets) inLog(known []dedup.Progress) (same []dedup.Progress, err error) {
	for _, p := range known {
		newest, err := l.client.GetOffset(p.Topic, p.Partition, sarama.OffsetNewest)
		if err != nil {
			return nil, fmt.Errorf("read the newest offset of %s/%d: %w", p.Topic, p.Partition, err)
		}
		if p.Next > newest {
			l.log.Warn("the log ends before the recorded progress, the topic was made anew: "+
				"beginning at Config.Start",
				"topic", p.Topic, "partition", p.Partition, "known", p.Next, "end", newest,
				"start", l.cfg.Start.String())
			continue
		}
		same = append(same, p)
	}
	return same, nil
}

// recorded asks the stores for the progress of fresh partitions. A Next of zero is no position.
func (l *lostOffsets) recorded(
	ctx context.Context, fresh map[partition]bool,
) (known []dedup.Progress, err error) {
	topics := make(map[string]bool)
	for p := range fresh {
		topics[p.topic] = true
	}
	names := make([]string, 0, len(topics))
	for topic := range topics {
		names = append(names, topic)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found := make(map[partition]dedup.Progress)
	for _, store := range l.stores {
		r, ok := store.(dedup.ProgressRecorder)
		if !ok {
			continue
		}
		all, err := r.Progress(ctx, l.cfg.Scope, names...)
		if err != nil { // repeated with the next session: no partition begins at a guess
			return nil, fmt.Errorf("read progress of scope %s: %w", l.cfg.Scope, err)
		}
		for _, p := range all {
			at := partition{p.Topic, p.Partition}
			if was, ok := found[at]; p.Next > 0 && fresh[at] && (!ok || p.Next < was.Next) {
				found[at] = p
			}
		}
	}
	for _, p := range sortedPartitions(found) {
		known = append(known, found[p])
	}
	return known, nil
}
