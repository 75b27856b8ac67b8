package dynamostore

import (
	"container/list"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// watch remembers which claims this store has seen, and since when they have not changed. It is what a lease is measured
// by: DynamoDB has no clock in its conditions, and clocks of two hosts are never compared (P-10, R-18). A lease counts as
// over when the same state of the item was seen, on the monotonic clock of this process, for the whole length of the
// lease. The holder renews by writing, and counts his lease from before he wrote: whoever saw what he wrote counts later.
//
// The list is bounded. What is not on it is Busy for another whole lease, which is late but never wrong.
type watch struct {
	most int

	mu    sync.Mutex
	seen  map[string]*list.Element // of *sighting
	order list.List                // the one that nobody has asked for longest is in front
}

// sighting is one state of one item.
type sighting struct {
	key   string
	token dedup.Token
	rev   uint64
	lease time.Duration
	first time.Time // when it was known to be there
	asked time.Time // when somebody last asked
}

// idle is for how long, beyond two of its leases, a claim is remembered that nobody asks for. A delivery that waits for a key
// asks again within a lease.
const idle = 10 * time.Minute

func newWatch(most int) *watch {
	return &watch{most: most, seen: make(map[string]*list.Element)}
}

// left is how much of the lease of r is left. now is after r was read and before anything is done about it.
func (w *watch) left(key string, r *record, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.note(key, r, now)
	return r.lease - now.Sub(s.first)
}

// saw notes a claim that was there at the given time at the latest.
func (w *watch) saw(key string, r *record, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(key, r, now)
}

func (w *watch) note(key string, r *record, now time.Time) *sighting {
	if e := w.seen[key]; e != nil {
		s := e.Value.(*sighting)
		if s.token != r.token || s.rev != r.rev {
			*s = sighting{key: key, token: r.token, rev: r.rev, lease: r.lease, first: now}
		}
		s.asked = now
		w.order.MoveToBack(e)
		return s
	}
	s := &sighting{key: key, token: r.token, rev: r.rev, lease: r.lease, first: now, asked: now}
	for range 2 { // more than come in, so that what is idle goes
		w.sweep(now)
	}
	if len(w.seen) < w.most { // those that are there are let go by their end, not by new ones: else none would be old enough
		w.seen[key] = w.order.PushBack(s)
	}
	return s
}

// sweep forgets the claim that nobody has asked for longest, if that is long enough.
func (w *watch) sweep(now time.Time) {
	e := w.order.Front()
	if e == nil {
		return
	}
	if s := e.Value.(*sighting); now.Sub(s.asked) > 2*s.lease+idle {
		w.order.Remove(e)
		delete(w.seen, s.key)
	}
}

// drop forgets a key that is not claimed any longer.
func (w *watch) drop(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.seen[key]; e != nil {
		w.order.Remove(e)
		delete(w.seen, key)
	}
}

func (w *watch) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}
