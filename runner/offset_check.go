package runner

import (
	"context"
	"errors"
	"log/slog"
	"maps"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// Move is an offset at which an assignment begins instead of the committed one, or without one. Only a member can
// commit it, because a group with members takes offsets from members only.
type Move struct {
	TopicPartition
	From int64 // the committed offset; -1: none
	To   int64
	// fresh is set if no store has a position there either, or [StartLost] ignores it.
	fresh bool
}

// OffsetCheck checks, before a session consumes, that the committed offsets are there and still in
// the log. Without this check clients jump without a report, or end the session without naming the
// partition (K-17, K-18, K-28). Create an OffsetCheck with [NewOffsetCheck].
type OffsetCheck struct {
	cfg       Config
	log       *slog.Logger
	observers []observe.GapObserver
	offsets   Offsets
	lost      *lostOffsets
}

// NewOffsetCheck returns a check with the progress that stores have on record. It needs the
// defaults of cfg.
func NewOffsetCheck(cfg Config, offsets Offsets, stores []dedup.Store) *OffsetCheck {
	own, _ := sortObservers(cfg.Observers)
	return &OffsetCheck{
		cfg: cfg, log: cfg.Logger, observers: own.Gap, offsets: offsets,
		lost: &lostOffsets{cfg: cfg, log: cfg.Logger, offsets: offsets, stores: stores},
	}
}

// Check applies the policies to every partition of a session, and returns the offsets to commit
// before the session consumes. With [Newest] these include the ends of source partitions without a
// committed offset. With [FailOnGap] the error holds a [*GapError] for each gap, and with
// [RefuseLost] an [*OffsetsLostError]. After another error, try again.
func (g *OffsetCheck) Check(ctx context.Context, claims map[string][]int32) ([]Move, error) {
	gaps, fresh, err := g.find(ctx, claims)
	if err != nil {
		return nil, err
	}
	moves, err := g.lost.check(ctx, fresh)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, gap := range gaps {
		policy := g.cfg.GapPolicyOf(gap.Topic)
		g.report(gap, policy)
		if to, ok := beyondGap(gap, policy); ok {
			at := TopicPartition{gap.Topic, gap.Partition}
			moves = append(moves, Move{TopicPartition: at, From: gap.Committed, To: to})
		} else {
			errs = append(errs, gap)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	newest, err := g.beginNewest(ctx, fresh, moves)
	if err != nil {
		return nil, err
	}
	return append(moves, newest...), nil
}

// beginNewest returns, with [Newest], the ends of the visible logs of fresh partitions without a
// move. They are committed, because a partition without an offset would begin at a later end after
// a crash or a rebalance. The records between the two ends would never run.
func (g *OffsetCheck) beginNewest(
	ctx context.Context, fresh map[TopicPartition]bool, moves []Move,
) (begin []Move, err error) {
	if g.cfg.Start != Newest {
		return nil, nil
	}
	fresh = maps.Clone(fresh)
	for _, m := range moves {
		delete(fresh, m.TopicPartition)
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	all := sortedPartitions(fresh)
	ends, err := g.offsets.Ends(ctx, byTopic(all))
	if err == nil {
		err = MissingOffset(byTopic(all), ends, nil)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		begin = append(begin, Move{TopicPartition: p, From: -1, To: ends[p], fresh: true})
	}
	return begin, nil
}

func (g *OffsetCheck) report(gap *GapError, policy GapPolicy) {
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

// beyondGap returns where to continue, and false if a person must decide.
func beyondGap(gap *GapError, policy GapPolicy) (to int64, ok bool) {
	switch policy {
	case EarliestOnGap:
		return gap.Oldest, true
	case LatestOnGap:
		return gap.Newest, true
	case FailOnGap:
	}
	return 0, false
}

// gapOf returns the gap between a committed offset and the log, or nil.
func gapOf(p TopicPartition, committed, oldest, newest int64) *GapError {
	if committed >= oldest && committed <= newest {
		return nil
	}
	return &GapError{
		Topic: p.Topic, Partition: p.Partition,
		Committed: committed, Oldest: oldest, Newest: newest,
	}
}

// find compares the committed offsets with the log, in the order of topic and partition. fresh has
// the partitions of source topics without a committed offset, which begin where Config.Start says.
func (g *OffsetCheck) find(
	ctx context.Context, claims map[string][]int32,
) (gaps []*GapError, fresh map[TopicPartition]bool, err error) {
	if len(claims) == 0 {
		return nil, nil, nil
	}
	committed, err := g.offsets.Committed(ctx, g.cfg.Group, claims)
	if err != nil {
		return nil, nil, err
	}
	fresh = make(map[TopicPartition]bool)
	for topic, ids := range claims {
		for _, id := range ids {
			p := TopicPartition{topic, id}
			if _, ok := committed[p]; !ok && !IsRetry(topic, g.cfg.Group) {
				fresh[p] = true
			}
		}
	}
	known := sortedPartitions(committed)
	oldest, err := g.offsets.Oldest(ctx, byTopic(known))
	if err != nil {
		return nil, nil, err
	}
	newest, err := g.offsets.Newest(ctx, byTopic(known))
	if err != nil {
		return nil, nil, err
	}
	for _, p := range known {
		if gap := gapOf(p, committed[p], oldest[p], newest[p]); gap != nil {
			gaps = append(gaps, gap)
		}
	}
	return gaps, fresh, nil
}
