package runner

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idem/dedup"
)

// lostOffsets acts on partitions without a committed offset that, according to a store, the scope
// has consumed.
type lostOffsets struct {
	cfg     Config
	log     *slog.Logger
	offsets Offsets
	stores  []dedup.Store
}

// check returns the recorded positions of fresh partitions if the policy is ResumeLost. Retry
// topics are not checked: the group reads them from the oldest record in any case, and the store
// knows which copies ran.
func (l *lostOffsets) check(
	ctx context.Context, fresh map[TopicPartition]bool,
) (moves []Move, err error) {
	policy := lostPolicy(l.cfg)
	if len(fresh) == 0 || policy == StartLost {
		return nil, nil
	}
	known, err := l.recorded(ctx, fresh)
	if err != nil || len(known) == 0 {
		return nil, err
	}
	newest, err := l.offsets.Newest(ctx, byTopic(partitionsOf(known)))
	if err != nil {
		return nil, err
	}
	known = l.inLog(known, newest)
	if len(known) == 0 {
		return nil, nil
	}
	l.log.Error("committed offsets are gone, but the store has the progress on record",
		"scope", l.cfg.Scope,
		"partitions", len(known), "policy", policy.String())
	if policy == RefuseLost {
		return nil, &OffsetsLostError{Scope: l.cfg.Scope, Known: known}
	}
	oldest, err := l.offsets.Oldest(ctx, byTopic(partitionsOf(known)))
	if err != nil {
		return nil, err
	}
	return resumeAt(known, oldest), nil
}

// lostPolicy returns the policy for lost offsets. A group that inherits the scope of another group
// has chosen to begin at Config.Start.
func lostPolicy(cfg Config) LostOffsetsPolicy {
	if cfg.OnLostOffsets == RefuseLost && cfg.Scope != cfg.Group {
		return StartLost
	}
	return cfg.OnLostOffsets
}

// resumeAt returns the recorded positions, or the nearest records.
func resumeAt(known []dedup.Progress, oldest map[TopicPartition]int64) (moves []Move) {
	for _, p := range known {
		at := TopicPartition{p.Topic, p.Partition}
		moves = append(moves, Move{TopicPartition: at, From: -1, To: max(p.Next, oldest[at])})
	}
	return moves
}

func partitionsOf(progress []dedup.Progress) (all []TopicPartition) {
	for _, p := range progress {
		all = append(all, TopicPartition{p.Topic, p.Partition})
	}
	return all
}

// inLog leaves out partitions with a log that ends before the recorded position. The topic was made
// anew and Kafka has dropped the old offsets. Such a partition begins at Config.Start, and the
// store recognises the events that are still on record.
func (l *lostOffsets) inLog(
	known []dedup.Progress, newest map[TopicPartition]int64,
) (same []dedup.Progress) {
	for _, p := range known {
		end := newest[TopicPartition{p.Topic, p.Partition}]
		if p.Next > end {
			l.log.Warn("the log ends before the recorded progress, the topic was made anew: "+
				"beginning at Config.Start",
				"topic", p.Topic, "partition", p.Partition, "known", p.Next, "end", end,
				"start", l.cfg.Start.String())
			continue
		}
		same = append(same, p)
	}
	return same
}

// recorded asks the stores for the progress of fresh partitions. A Next of zero is no position.
func (l *lostOffsets) recorded(
	ctx context.Context, fresh map[TopicPartition]bool,
) (known []dedup.Progress, err error) {
	topics := make(map[string]bool)
	for p := range fresh {
		topics[p.Topic] = true
	}
	names := make([]string, 0, len(topics))
	for topic := range topics {
		names = append(names, topic)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found := make(map[TopicPartition]dedup.Progress)
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
			at := TopicPartition{p.Topic, p.Partition}
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
