package httpidem

import (
	"sync"
	"sync/atomic"
	"time"
)

// outage is a ledger that cannot be used: it is told once when that begins and once when it is over, however many requests meet
// it. Safe for concurrent use. The zero value is a ledger that works.
type outage struct {
	on atomic.Bool // for those who have good news: as a rule there is nothing to do

	mu       sync.Mutex
	since    time.Time
	last     time.Time // when a request met it last
	requests int       // that have met it
}

// calm is for how long nothing must fail before it is over: a ledger that fails now and then is one outage, and not one for each request.
const calm = 5 * time.Second

// met notes that a request met it, and reports whether it is the first.
func (o *outage) met() (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if first = o.requests == 0; first {
		o.since = now
	}
	o.last = now
	o.requests++
	o.on.Store(true)
	return first
}

// answered notes that the ledger has answered, and reports whether that ends an outage, how long it was, and for how many requests.
func (o *outage) answered() (over bool, lasted time.Duration, requests int) {
	if !o.on.Load() {
		return false, 0, 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.requests == 0 || time.Since(o.last) < calm {
		return false, 0, 0
	}
	lasted, requests = o.last.Sub(o.since), o.requests
	o.requests = 0
	o.on.Store(false)
	return true, lasted, requests
}
