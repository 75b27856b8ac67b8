package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/kafkalog"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/runner"
)

// part is one partition of a run.
type part struct {
	PartitionPlan

	mu      sync.Mutex
	lane    *lane.Partition // while the partition is replayed
	next    int64           // the position without the lane
	deleted int64           // offsets that Kafka deleted during the run
}

// position returns the offset before which all records are settled.
func (p *part) position() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.follow()
	return p.next
}

// follow takes over the watermark. The caller holds mu.
func (p *part) follow() {
	if p.lane == nil {
		return
	}
	if next, ok := p.lane.Watermark(); ok {
		p.next = min(max(p.next, next), p.End)
	}
}

func (p *part) begin(l *lane.Partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lane = l
}

// end keeps the final watermark of a closed lane. The end of the plan may have no record.
func (p *part) end(complete bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follow(); complete {
		p.next = p.End
	}
	p.lane = nil
}

func (p *part) skipped() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deleted
}

func (p *part) skip(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deleted += n
}

// minQueueShare is room for some dozens of small events.
const minQueueShare = 64 << 10

// replay settles the records of one partition.
func (j *job) replay(ctx context.Context, p *part) error {
	if p.Records() == 0 {
		return nil
	}
	cfg := j.r.neutral
	j.r.proc.Assigned(p.Topic, p.Partition)
	l := lane.New(j.r.proc, p.Topic, p.Partition, lane.Config{
		Lanes:       cfg.Lanes,
		QueueBytes:  max(cfg.QueueBytes/min(j.r.cfg.Partitions, len(j.parts)), minQueueShare),
		OwnProgress: true, // of the live group, whose retention must not move
	})
	p.begin(l)
	err := j.feed(ctx, p, l)
	if err == nil {
		err = drain(ctx, l)
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.EndWait())
	defer cancel()
	closed := l.Close(closing, idem.ErrStopping)
	p.end(err == nil && closed == nil)
	if own := l.Err(); errors.Is(err, lane.ErrClosed) && own != nil {
		err = fmt.Errorf("%s: %w", p.place(), own)
	}
	return errors.Join(err, closed)
}

// drain waits until all records are settled. The error is the cause of ctx, or [lane.ErrClosed].
func drain(ctx context.Context, l *lane.Partition) error {
	for l.Pending() > 0 {
		select {
		case <-l.Advanced():
		case <-l.Done():
			return lane.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// feed reads the records of the plan into the lane, and blocks while the queue of the lane is full.
// feed waits for brokers, and for the end of an open transaction, as long as the configuration
// allows.
func (j *job) feed(ctx context.Context, p *part, l *lane.Partition) error {
	span := kafkalog.Span{Topic: p.Topic, Partition: p.Partition, Begin: p.First, End: p.End}
	var back runner.Backoff
	var trouble time.Time // since when no record came
	for span.Begin < span.End {
		next, err := kafkalog.ReadFrom(ctx, j.client, span, func(m *idem.Message) error {
			if err := j.pace.wait(ctx, l.Done()); err != nil {
				return err
			}
			return l.Push(ctx, m)
		})
		if next > span.Begin {
			span.Begin, back, trouble = next, runner.Backoff{}, time.Time{}
		}
		var deleted *kafkalog.DeletedError
		switch {
		case err == nil && next >= span.End:
			return nil
		case err == nil:
			err = fmt.Errorf("%w: %s, offset %d", ErrOpenTransaction, p.place(), next)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &deleted) && !j.r.cfg.SkipDeleted:
			return lost(p, deleted)
		case errors.As(err, &deleted):
			p.skip(deleted.To - deleted.From)
			span.Begin = deleted.To
			continue
		case permanent(err):
			return err
		}
		switch {
		case !trouble.IsZero() && time.Since(trouble) >= j.r.cfg.BrokerWait:
			return err
		case trouble.IsZero():
			trouble = time.Now()
			j.r.neutral.Logger.Warn("cannot read, will go on trying", "topic", p.Topic,
				"partition", p.Partition, "error", j.r.neutral.Text(err))
		}
		if err := back.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// lost describes records that were deleted during the run.
func lost(p *part, e *kafkalog.DeletedError) error {
	gone := PartitionPlan{
		Topic: p.Topic, Partition: p.Partition, First: e.From, End: e.To, Deleted: e.To - e.From,
	}
	return &DeletedError{Partitions: []PartitionPlan{gone}}
}
