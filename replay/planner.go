package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/jsontime"
	"github.com/idem-go/idem/internal/kafkalog"
)

// Plan asks the brokers for the offsets of the window, and reads the first and the last record of
// each partition for their times. Plan only reads. A topic or partition that does not exist is an
// error. Plan returns the cause of ctx after the current request. Plan does not wait for brokers
// that are away, as [Replay.Run] does: its error comes at once.
//
// Records of open transactions are not in the plan, because no consumer may read them yet.
func (r *Replay) Plan(ctx context.Context) (Plan, error) {
	client, err := r.connected(ctx)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Scope: r.scope, Made: time.Now().UTC()}
	spans, err := kafkalog.Spans(client, r.topics...)
	if err != nil {
		return Plan{}, err
	}
	known := make(map[place]bool)
	for _, s := range spans {
		known[place{s.Topic, s.Partition}] = true
		if ctx.Err() != nil {
			return Plan{}, context.Cause(ctx)
		}
		part, wanted, err := r.planPartition(client, s)
		if err == nil && wanted {
			err = readTimes(ctx, client, &part)
			plan.Partitions = append(plan.Partitions, part)
		}
		if err != nil {
			return Plan{}, fmt.Errorf("plan %s/%d: %w", s.Topic, s.Partition, err)
		}
	}
	for _, w := range r.cfg.Window.ranges {
		if at := (place{w.Topic, w.Partition}); !known[at] {
			return Plan{}, fmt.Errorf("plan %s: %w", at, sarama.ErrUnknownTopicOrPartition)
		}
	}
	return plan, nil
}

// planPartition reports false for a partition outside of a window of offsets.
func (r *Replay) planPartition(
	client sarama.Client, s kafkalog.Span,
) (part PartitionPlan, wanted bool, err error) {
	w, at := r.cfg.Window, place{s.Topic, s.Partition}
	own, listed := w.rangeOf(at)
	if !w.timed && !listed {
		return PartitionPlan{}, false, nil
	}
	b := bounds{oldest: s.Begin, newest: s.End, from: s.Begin, to: -1}
	if b.stable, err = kafkalog.Stable(client, s.Topic, s.Partition); err != nil {
		return PartitionPlan{}, false, err
	}
	b.newest = max(b.newest, b.stable) // asked later
	if !w.timed {
		return planRange(own, b), true, nil
	}
	for _, bound := range []struct {
		at     time.Time
		offset *int64
	}{{w.from, &b.from}, {w.to, &b.to}} {
		if bound.at.IsZero() {
			continue
		}
		if *bound.offset, err = client.GetOffset(s.Topic, s.Partition, milli(bound.at)); err != nil {
			return PartitionPlan{}, false, fmt.Errorf("offset at %s: %w", bound.at, err)
		}
	}
	return planTime(w, at, b), true, nil
}

// readTimes reads the first record, and the last one near the end.
func readTimes(ctx context.Context, client sarama.Client, p *PartitionPlan) error {
	span := kafkalog.Span{Topic: p.Topic, Partition: p.Partition, Begin: p.First, End: p.End}
	none := true
	_, err := kafkalog.Read(ctx, client, span, func(m *idem.Message) (bool, error) {
		p.FirstTime, none = jsontime.Known(m.Time), false
		return false, nil
	})
	if err != nil || none {
		return err
	}
	none = true
	for _, near := range []int64{16, 4096} { // markers and aborted records have offsets too
		span.Begin = max(p.First, p.End-near)
		_, err := kafkalog.Read(ctx, client, span, func(m *idem.Message) (bool, error) {
			p.LastTime, none = jsontime.Known(m.Time), false
			return true, nil
		})
		if err != nil || !none {
			return err
		}
	}
	return nil
}
