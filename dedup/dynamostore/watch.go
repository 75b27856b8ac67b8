package dynamostore

import (
	"container/list"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// watch remembers the claims that this store has seen, and the time of the last change of each.
// Leases are measured with a watch. Conditions of DynamoDB have no clock, and clocks of two hosts
// are never compared (P-10, R-18). A lease has ended if the store saw the same state of the item
// for the whole length of the lease. The length is measured by the monotonic clock of this process.
// The holder renews by a write and counts the lease from before that write. Other processes see the
// write later, and count from later.
//
// The list is bounded. A claim outside the list stays Busy for another whole lease, which is
// late but never wrong.
type watch struct {
	most int

	mu    sync.Mutex
	seen  map[string]*list.Element // of *sighting
	order list.List                // the claim that was not asked for longest is in front
}

// sighting is one state of one item.
type sighting struct {
	key   string
	token dedup.Token
	rev   uint64
	lease time.Duration
	first time.Time // when the state was known to exist
	asked time.Time // time of the last question
}

// idle is the time for which a claim is remembered without a question, beyond two leases. A
// delivery that waits for a key asks again within a lease.
const idle = 10 * time.Minute

func newWatch(most int) *watch {
	return &watch{most: most, seen: make(map[string]*list.Element)}
}

// left is the rest of the lease of r. now is a time after the read of r and before any action on
// r.
func (w *watch) left(key string, r *record, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.note(key, r, now)
	return r.lease - now.Sub(s.first)
}

// saw notes a claim that existed at the given time at the latest.
func (w *watch) saw(key string, r *record, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(key, r, now)
}

func (w *watch) note(key string, r *record, now time.Time) *sighting {
	if e := w.seen[key]; e != nil {
		s := e.Value.(*sighting)
		if s.token != r.Token || s.rev != r.rev {
			*s = sighting{key: key, token: r.Token, rev: r.rev, lease: r.lease, first: now}
		}
		s.asked = now
		w.order.MoveToBack(e)
		return s
	}
	s := &sighting{key: key, token: r.Token, rev: r.rev, lease: r.lease, first: now, asked: now}
	for range 2 { // more than are added, so that idle claims go
		w.sweep(now)
	}
	// a full list accepts no new claim: otherwise no claim would ever be old enough
	if len(w.seen) < w.most {
		w.seen[key] = w.order.PushBack(s)
	}
	return s
}

// sweep forgets the claim that was not asked for longest, if that is long enough.
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

// drop forgets a key without a claim.
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

// claimOf is a claim of which only the parts that a watch needs are known.
func claimOf(t dedup.Token, rev uint64, lease time.Duration) *record {
	return &record{Record: decision.Record{State: decision.Claimed, Token: t}, rev: rev, lease: lease}
}
