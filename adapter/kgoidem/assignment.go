package kgoidem

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/lane"
)

// place is where an assignment begins.
type place struct {
	offset    int64
	committed bool // offset is committed
	moved     bool // offset is to be committed: a policy has chosen it
}

// assignment is one assignment of one partition to this member. The next assignment of the
// partition is another one, so a late completion cannot mark an offset in it (K-39).
type assignment struct {
	partition
	begin place
	lane  *lane.Partition
	due   func(*idem.Message) time.Duration // how long a message must wait
	flow  func(paused bool)                 // pauses or resumes the fetching
	limit int                               // bytes that may wait in front of the lane
	times *timeline

	ctx    context.Context // ends with the assignment
	giveUp context.CancelCauseFunc
	fed    chan struct{} // closed when the feeder has ended
	ending sync.Once
	ended  chan struct{} // closed when the partition is given back

	converter converter // used by the poll loop only

	mu       sync.Mutex
	wake     chan struct{} // has room for one signal
	waiting  []*idem.Message
	held     int // messages that the lane has not taken
	bytes    int
	paused   bool
	position int64 // the offset behind the last record of any kind; -1: none came
	cutTo    int64 // where the log was cut; -1: it was not
	lost     bool  // another member may have the partition

	// The committer's. member.mu guards them.
	marked    int64 // last watermark that was sent; -1: none
	confirmed int64 // last watermark that a broker has confirmed; -1: none
	stalls    bool  // a stall was reported
	stuck     bool  // given up for a stall
	excused   time.Time
	silent    silence
	reported  bool // the last progress was reported
}

func newAssignment(ctx context.Context, p partition, begin place, l *lane.Partition) *assignment {
	a := &assignment{
		partition: p, begin: begin, lane: l, times: newTimeline(),
		fed: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1),
		position: -1, cutTo: -1, marked: -1, confirmed: -1,
	}
	a.ctx, a.giveUp = context.WithCancelCause(ctx)
	return a
}

// add takes fetched records. It does not wait: the feeder does, and the fetching pauses when too
// much waits (K-14).
func (a *assignment) add(records []*kgo.Record) {
	if len(records) == 0 || a.ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range records {
		if r.Offset < a.position {
			continue
		}
		a.position = r.Offset + 1
		if r.Attrs.IsControl() {
			continue
		}
		a.times.note(r.Offset, r.Timestamp)
		m := a.converter.message(r)
		a.waiting = append(a.waiting, m)
		a.held++
		a.bytes += weightOf(m)
	}
	if a.bytes > a.limit && !a.paused {
		a.paused = true
		a.flow(true)
	}
	signal(a.wake)
}

// feed moves messages into the lane until the assignment ends.
//
// A copy for a delayed retry waits here. The copy does not count as begun, so a waiting retry topic
// is no stall, and the poll loop goes on, so the member stays in the group for any delay. A revoke
// ends the wait at once (T-05). A retry topic has one delay, so no copy behind the first one is due
// earlier.
func (a *assignment) feed() {
	for {
		a.mu.Lock()
		batch := a.waiting
		a.waiting = nil
		a.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-a.wake:
				continue
			case <-a.ctx.Done():
			case <-a.lane.Done():
			}
			return
		}
		for i, m := range batch {
			if !a.await(m) || a.lane.Push(a.ctx, m) != nil {
				return
			}
			batch[i] = nil
			a.taken(weightOf(m))
		}
	}
}

// recheck is how often the due time of a waiting copy is read again, because the wall clock may be
// set.
const recheck = 10 * time.Second

// await waits until a message is due. The result is false if the assignment has ended.
func (a *assignment) await(m *idem.Message) bool {
	for {
		wait := a.due(m)
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(min(wait, recheck))
		select {
		case <-timer.C:
		case <-a.ctx.Done():
			timer.Stop()
			return false
		case <-a.lane.Done():
			timer.Stop()
			return false
		}
	}
}

// taken notes that the lane has a message, and resumes the fetching when little waits.
func (a *assignment) taken(weight int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held--
	a.bytes -= weight
	if a.paused && a.bytes <= a.limit/2 {
		a.paused = false
		a.flow(false)
	}
}

// idle reports whether nothing is in front of the lane or in it. The caller holds a.mu.
func (a *assignment) idle() bool { return a.held == 0 && a.lane.Pending() == 0 }

// watermark returns the next offset to commit, and false if there is none.
//
// Markers of transactions behind the watermark count as consumed, and so do aborted records. Kafka
// may delete them, and a committed offset before deleted records would look like a gap (K-17).
func (a *assignment) watermark() (next int64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cutTo >= 0 {
		return a.cutTo, true
	}
	next, ok = a.lane.Watermark()
	if a.position >= 0 && a.idle() {
		return max(next, a.position), true
	}
	if !ok && a.begin.moved {
		return a.begin.offset, true
	}
	return next, ok
}

// cut makes the next assignment begin at an offset: the records from there on are others than those
// that were fetched.
func (a *assignment) cut(at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cutTo = at
}

// fetched returns the offset behind the last record of any kind, or -1.
func (a *assignment) fetched() (position int64, paused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.position, a.paused
}

// next returns the offset of the next record that the assignment needs.
func (a *assignment) next() int64 {
	if next, ok := a.watermark(); ok {
		return next
	}
	return a.begin.offset
}

// pending counts the fetched messages that are not settled.
func (a *assignment) pending() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held + a.lane.Pending()
}

// progress returns the position of the assignment with a confirmed offset, or -1. end is the end of
// the log, or -1 if that is not known.
//
// Next stays zero for an assignment that began without a committed offset and has committed none.
// Otherwise the next start would find a recorded position without a committed offset, and report
// lost offsets (K-19).
func (a *assignment) progress(confirmed, end int64) dedup.Progress {
	p := dedup.Progress{Topic: a.Topic, Partition: a.Partition}
	next := confirmed
	if next < 0 {
		next = a.begin.offset
	}
	if confirmed >= 0 || a.begin.committed {
		p.Next = next
	}
	p.Time = a.times.before(next)
	p.CaughtUp = end >= 0 && next >= end && a.pending() == 0
	return p
}

// end ends the assignment once and returns when it has ended, for all callers.
func (a *assignment) end(work func()) {
	a.ending.Do(func() {
		defer close(a.ended)
		work()
	})
	<-a.ended
}

// lose notes that another member may have the partition.
func (a *assignment) lose() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost = true
}

func (a *assignment) isLost() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
