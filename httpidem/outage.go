package httpidem

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// outage records that the store is unavailable: it is logged once at its beginning and once at its
// end, for any number of requests. Safe for concurrent use. The zero value is a store that works.
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

// answered records an answer of the store. It reports whether that ends an outage, with its
// duration and the number of failed requests.
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

// recordTime is the time in which a [dedup.Entry] tries to record its end.
const recordTime = 10 * time.Second

// checkServer warns once about a server that closes connections before a keyed request may end: the
// handler would run, and its client would see a broken connection.
func (m *Middleware) checkServer(r *http.Request) {
	if m.warned.Load() {
		return
	}
	srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	longest := m.cfg.StoreTimeout + m.cfg.Wait + m.cfg.Timeout + recordTime
	if !ok || srv.WriteTimeout <= 0 || srv.WriteTimeout >= longest ||
		!m.warned.CompareAndSwap(false, true) {
		return
	}
	m.cfg.Logger.WarnContext(r.Context(),
		"http.Server.WriteTimeout is shorter than a keyed request may take: "+
			"its handler then runs, and its client sees a broken connection; "+
			"raise it, or lower Timeout of httpidem.Config", "write_timeout", srv.WriteTimeout,
		"longest_request", longest)
}
