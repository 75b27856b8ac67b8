package runner

import (
	"sync"
	"sync/atomic"
	"time"
)

// timeline remembers the broker's times of the records of an assigned partition, as samples. These
// are the first record, and then one for each second of record time or each 100 records.
type timeline struct {
	fetched atomic.Int64 // the offset after the last record; -1: no record

	mu      sync.Mutex
	from    int64 // where the assignment begins; -1: unknown
	samples []sample
	since   int // records since the last sample
}

type sample struct {
	offset int64
	at     time.Time
}

// maxSamples bounds a timeline. The lanes bound the records between watermark and delivery far
// below.
const maxSamples = 256

func newTimeline() *timeline {
	t := &timeline{from: -1}
	t.fetched.Store(-1)
	return t
}

// note takes the offset and time of every record, in order.
func (t *timeline) note(offset int64, at time.Time) {
	t.fetched.Store(offset + 1)
	if at.Unix() <= 0 { // the record has no time
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since++
	if n := len(t.samples); n > 0 && t.since < 100 {
		if apart := at.Sub(t.samples[n-1].at); apart >= 0 && apart < time.Second {
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
	t.samples = append(t.samples, sample{offset, at})
}

// before returns the time of the newest sample below an offset, or zero. Older samples are
// forgotten.
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

// begin returns where the assignment begins, or a negative number. As long as that is unknown,
// begin calls ask, unless ask is nil.
func (t *timeline) begin(ask func() int64) int64 {
	t.mu.Lock()
	from := t.from
	t.mu.Unlock()
	if from >= 0 || ask == nil {
		return from
	}
	from = ask() // may be slow
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from = from
	return from
}
