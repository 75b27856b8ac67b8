package httpidem

import (
	"sync"
	"sync/atomic"
	"time"
)

// outage records that the store is unavailable: the beginning and the end are logged once each, for
// any number of requests. Safe for concurrent use. The zero value is a store that works.
type outage struct {
	on atomic.Bool // fast path: usually there is no outage

	mu       sync.Mutex
	since    time.Time
	last     time.Time // the last failed request
	requests int       // failed requests
}

// calm is the time without a failure that ends an outage: a store that fails now and then has one
// outage, not one for each request.
const calm = 5 * time.Second

// met counts a failed request, and reports whether it is the first of an outage.
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

// recovered records an answer of the store. The results are the end of an outage, the duration, and
// the number of failed requests.
func (o *outage) recovered() (over bool, lasted time.Duration, requests int) {
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
