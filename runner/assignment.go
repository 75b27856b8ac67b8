package runner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/lane"
)

// Assignment is one assignment of one partition to this member. The next assignment of the
// partition is another one, so a late completion cannot mark an offset in it (K-39). Safe for
// concurrent use.
type Assignment struct {
	TopicPartition
	claim  Claim
	lane   *lane.Partition
	times  *timeline
	tail   *Tail
	ctx    context.Context // ends with the session, or when the partition is given up
	giveUp context.CancelCauseFunc

	unsafe atomic.Bool // no broker has confirmed an offset of the group yet, see progress

	marked  int64     // last marked watermark; session.mu guards it and the next three
	stalls  bool      // a stall was reported
	excused time.Time // when the partition last rested for a reason that is no stall
	stuck   bool      // given up for a stall

	telling sync.Mutex // of progress: no report follows the last one
	last    bool
}

func newAssignment(ctx context.Context, claim Claim, l *lane.Partition) *Assignment {
	if own, ok := claim.(ClaimContext); ok {
		ctx = own.Context()
	}
	a := &Assignment{
		TopicPartition: TopicPartition{claim.Topic(), claim.Partition()}, claim: claim, lane: l,
		times: newTimeline(), tail: newTail(), marked: -1,
	}
	a.ctx, a.giveUp = context.WithCancelCause(ctx)
	place, _ := a.chosen()
	a.unsafe.Store(place.fresh)
	return a
}

// chosen returns where the assignment begins, if a policy has chosen that.
func (a *Assignment) chosen() (at Place, ok bool) {
	if p := positionOf(a.claim); p != nil && p.place.Chosen {
		return p.place, true
	}
	return Place{}, false
}

// Claim returns the claim of the client.
func (a *Assignment) Claim() Claim { return a.claim }

// Pending returns how many records were taken and are not settled.
func (a *Assignment) Pending() int { return a.lane.Pending() }

// Tail returns the known end of the partition's log.
func (a *Assignment) Tail() *Tail { return a.tail }

// lost returns the cause if this partition alone was lost, see ClaimContext.
func (a *Assignment) lost() error {
	if cause := context.Cause(a.ctx); errors.Is(cause, idem.ErrPartitionLost) {
		return cause
	}
	return nil
}

// question asks for the end of the partition's log.
func (a *Assignment) question(next int64) EndQuestion {
	return EndQuestion{TopicPartition: a.TopicPartition, Claim: a.claim, Tail: a.tail, Next: next}
}

// watermark returns the next offset to commit, and false if it is not known.
//
// Markers of transactions behind the watermark count as consumed. Kafka may delete the markers, and
// a committed offset before deleted markers would look like a gap (K-17).
func (a *Assignment) watermark() (next int64, ok bool) {
	next, ok = a.lane.Watermark()
	if !ok {
		next = a.claim.InitialOffset()
	}
	beyond := a.tail.beyond(next)
	return beyond, ok || beyond != next
}

// next returns the offset of the next record that is to come or not settled, or a negative number
// if that cannot be found now. oldest may be nil.
func (a *Assignment) next(oldest func(topic string, partition int32) (int64, error)) int64 {
	if next, ok := a.watermark(); ok {
		return next
	}
	return a.times.begin(func() int64 { return a.beginning(oldest) })
}

// progress returns the position of the assignment, if next is its next offset; negative: unknown.
//
// Next stays zero for an assignment that began without a committed offset, or at a place of
// [Newest], until a broker has confirmed an offset of the group. Otherwise the next start could find
// a recorded position without a committed offset, and report lost offsets (K-19). A client without
// [Hooks].Committed cannot ask: there the first marked offset counts as committed.
func (a *Assignment) progress(next int64, marked bool) dedup.Progress {
	p := dedup.Progress{
		Topic: a.Topic, Partition: a.Partition, Next: max(next, 0), Time: a.times.before(next),
		CaughtUp: next >= 0 && a.tail.caughtUp(next, time.Now()) && a.lane.Pending() == 0,
	}
	if a.unsafe.Load() || !marked && a.claim.InitialOffset() < 0 {
		p.Next = 0
	}
	return p
}

// beginning returns where the assignment begins, or a negative number if that cannot be found now.
// A group without a committed offset begins at one end of the log. oldest may be nil.
func (a *Assignment) beginning(oldest func(topic string, partition int32) (int64, error)) int64 {
	switch from := a.claim.InitialOffset(); {
	case from >= 0:
		return from
	// no record came, so the end is unchanged
	case from == OffsetNewest && a.lane.Pending() == 0:
		return a.claim.HighWaterMarkOffset()
	case from == OffsetOldest && oldest != nil:
		if first, err := oldest(a.Topic, a.Partition); err == nil {
			return first
		}
	}
	return -1
}
