package httpidem

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// outage is a store that cannot be used: it is told once when that begins and once when it is over, however many requests meet
// it. Safe for concurrent use. The zero value is a store that works.
type outage struct {
	on atomic.Bool // for those who have good news: as a rule there is nothing to do

	mu       sync.Mutex
	since    time.Time
	last     time.Time // when a request met it last
	requests int       // that have met it
}

// calm is for how long nothing must fail before it is over: a store that fails now and then is one outage, and not one for each request.
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

// answered notes that the store has answered, and reports whether that ends an outage, how long it was, and for how many requests.
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

// recordTime is how long a [dedup.Entry] tries to record how it ended.
const recordTime = 10 * time.Second

// checkServer warns once of a server that closes connections earlier than a keyed request may need them: the handler runs, and its client
// sees a broken connection.
func (m *Middleware) checkServer(r *http.Request) {
	if m.warned.Load() {
		return
	}
	srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	longest := m.cfg.StoreTimeout + m.cfg.Wait + m.cfg.Timeout + recordTime
	if !ok || srv.WriteTimeout <= 0 || srv.WriteTimeout >= longest || !m.warned.CompareAndSwap(false, true) {
		return
	}
	m.cfg.Logger.WarnContext(r.Context(), "http.Server.WriteTimeout is shorter than a keyed request may take, whose handler then runs although its client sees a broken connection: "+
		"raise it, or lower Timeout of httpidem.Config", "write_timeout", srv.WriteTimeout, "longest_request", longest)
}
