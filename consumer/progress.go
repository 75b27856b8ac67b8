package consumer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/dedup"
)

// A store forgets in consumed time (rule 8), so it is told how far this member has come: by a goroutine of each session
// beside the one that commits, since a slow store must not delay a commit.
//
// The group's retry topics count like all others, by the times of the copies and not of the records they were made of: a
// copy has the time of its making, and the event's record in the store was changed just after that and expires a retention
// later. While the copy waits, the progress of its partition stands before it, so that the record cannot go; and a record
// that is there is never too old, whatever the age of its event. By the source's time an old event in a tier of hours
// would hold up, or let go, the memory of the whole scope. A tier that no handler declares any longer is read as long as
// its topic exists; when that is deleted it holds the memory up until the store is told to forget its progress.

const (
	// progressInterval is how often progress is recorded.
	progressInterval = 10 * time.Second
	// progressWait bounds a record, and so what the end of a session adds to the end of its consumer.
	progressWait = 3 * time.Second
)

// recorder records the progress of one session.
type recorder struct {
	s    *session
	poke chan struct{} // something has parted

	mu     sync.Mutex
	parted []dedup.Progress // of claims that have ended, not recorded yet
	failed bool             // was told; used by the loop only
}

// newRecorder returns nil if no store wants to know.
func newRecorder(s *session) *recorder {
	wanted := slices.ContainsFunc(s.h.proc.Stores(), func(store dedup.Store) bool {
		_, ok := store.(dedup.ProgressRecorder)
		return ok
	})
	if !wanted {
		return nil
	}
	return &recorder{s: s, poke: make(chan struct{}, 1)}
}

// loop records until the session is closed, and once more then.
func (r *recorder) loop() {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.record(r.s.progress())
		case <-r.poke:
			r.record(nil)
		case <-r.s.stop:
			r.record(nil) // the claims ended before the session
			return
		}
	}
}

// part takes the last progress of a claim, soon to be recorded: its partition may have a new owner by then, who will say
// more.
func (r *recorder) part(c *claimed, marked int64) {
	if r == nil {
		return
	}
	known := marked >= 0
	if !known { // not worth a question to the broker that may delay the end
		if marked = c.times.begin(nil); marked < 0 {
			return
		}
	}
	p := c.progress(marked, known)
	r.mu.Lock()
	r.parted = append(r.parted, p)
	r.mu.Unlock()
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

func (r *recorder) record(progress []dedup.Progress) {
	r.mu.Lock()
	progress = append(r.parted, progress...)
	r.parted = nil
	r.mu.Unlock()
	if len(progress) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), progressWait)
	defer cancel()
	err := r.s.h.proc.RecordProgress(ctx, progress)
	switch {
	case err != nil && !r.failed:
		r.s.h.log.Warn("progress cannot be recorded, the store forgets nothing meanwhile", "error", r.s.h.cfg.errorText(err))
	case err == nil && r.failed:
		r.s.h.log.Info("progress is recorded again")
	}
	r.failed = err != nil
}

// progress is how far each claim is, as it was committed last.
func (s *session) progress() (all []dedup.Progress) {
	type position struct {
		question
		known bool
	}
	var positions []position
	var questions []question
	for _, c := range s.list() {
		s.mu.Lock()
		marked := c.marked
		s.mu.Unlock()
		known := marked >= 0
		if !known {
			marked = c.times.begin(func() int64 { return s.h.beginning(c) })
		}
		q := question{c, marked}
		positions = append(positions, position{q, known})
		if q.next >= 0 && c.lane.Pending() == 0 {
			questions = append(questions, q)
		}
	}
	if s.ends != nil {
		s.ends.ask(questions, s.stop)
	}
	for _, p := range positions {
		all = append(all, p.progress(p.next, p.known))
	}
	return all
}

// progress says how far a claim is that goes on with next; negative: that is not known.
//
// Where a claim begins that has no committed offset, and marked none, is not on record as its next: a start that finds nothing
// committed, as nothing happened, would take that for lost offsets (K-19).
func (c *claimed) progress(next int64, marked bool) dedup.Progress {
	p := dedup.Progress{
		Topic: c.topic, Partition: c.id, Next: max(next, 0), Time: c.times.before(next),
		CaughtUp: next >= 0 && c.tail.caughtUp(next, time.Now()) && c.lane.Pending() == 0,
	}
	if !marked && c.claim.InitialOffset() < 0 {
		p.Next = 0
	}
	return p
}

// beginning is where a claim begins, or negative if that cannot be found out now: a group without a committed offset
// begins at one end of the log.
func (h *GroupHandler) beginning(c *claimed) int64 {
	switch from := c.claim.InitialOffset(); {
	case from >= 0:
		return from
	case from == sarama.OffsetNewest && c.lane.Pending() == 0: // nothing came, so it is still there
		return c.claim.HighWaterMarkOffset()
	case from == sarama.OffsetOldest && h.oldest != nil:
		if oldest, err := h.oldest(c.topic, c.id); err == nil {
			return oldest
		}
	}
	return -1
}

// timeline remembers the broker's times of the records of a claim, thinly: the first, and then one each second of their
// time or each 100 records.
type timeline struct {
	fetched atomic.Int64 // the offset after the last record; -1: none

	mu      sync.Mutex
	from    int64 // where the claim begins, if known
	samples []sample
	since   int // records since the last sample
}

type sample struct {
	offset int64
	at     time.Time
}

// maxSamples bounds a timeline. What is between watermark and delivery is bounded too, and far less.
const maxSamples = 256

func newTimeline() *timeline {
	t := &timeline{from: -1}
	t.fetched.Store(-1)
	return t
}

// note is told of every record, in their order.
func (t *timeline) note(m *sarama.ConsumerMessage) {
	t.fetched.Store(m.Offset + 1)
	if m.Timestamp.Unix() <= 0 { // the broker has none
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since++
	if n := len(t.samples); n > 0 && t.since < 100 {
		if apart := m.Timestamp.Sub(t.samples[n-1].at); apart >= 0 && apart < time.Second {
			return
		}
	}
	t.since = 0
	if len(t.samples) == maxSamples { // keep every other one, and the newest
		kept := t.samples[:0]
		for i := 1; i < maxSamples; i += 2 {
			kept = append(kept, t.samples[i])
		}
		t.samples = kept
	}
	t.samples = append(t.samples, sample{m.Offset, m.Timestamp})
}

// before returns the time of the newest record known below an offset, and zero if none is. Older ones are forgotten.
func (t *timeline) before(next int64) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for n < len(t.samples) && t.samples[n].offset < next {
		n++
	}
	if n == 0 {
		return time.Time{}
	}
	t.samples = append(t.samples[:0], t.samples[n-1:]...)
	return t.samples[0].at
}

// begin returns where the claim begins, or negative. It asks, if it may, as long as that is not known.
func (t *timeline) begin(ask func() int64) int64 {
	t.mu.Lock()
	from := t.from
	t.mu.Unlock()
	if from >= 0 || ask == nil {
		return from
	}
	from = ask() // may take its time
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from = from
	return from
}
