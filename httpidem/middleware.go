package httpidem

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Middleware answers requests with an idempotency key once. It is safe for concurrent use. Create
// one with [New] or [NewTx], and call Close after the server was shut down.
type Middleware struct {
	cfg   Config
	guard *dedup.Guard
	enter enterFunc
	tx    bool // made by NewTx
	// nil: the store has no look-up
	look func(context.Context, []dedup.Request, []dedup.Answer) error

	kept map[string]bool // replayed response headers

	outage outage      // of the store
	warned atomic.Bool // WriteTimeout of the server was reported
	sparse sparse      // log lines that any request may cause

	load load

	mu   sync.Mutex
	live map[owner]map[dedup.Key]int // by principal: requests in flight for each key
}

// enterFunc runs the handler of a request, or answers the request.
type enterFunc func(w http.ResponseWriter, q *request, next http.Handler)

// New returns a middleware that claims keys, for effects anywhere. The error contains all problems
// of cfg.
func New(cfg Config) (*Middleware, error) {
	m, err := newMiddleware(cfg)
	if err != nil {
		return nil, err
	}
	m.enter = m.claimed
	if l, ok := cfg.Store.(dedup.Looker); ok {
		m.look = l.Look
	}
	return m, nil
}

func newMiddleware(cfg Config) (*Middleware, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	wait := cfg.Wait
	if wait == 0 {
		wait = -1
	}
	return &Middleware{
		cfg:  cfg,
		live: make(map[owner]map[dedup.Key]int),
		kept: replayed(cfg.ReplayHeaders),
		guard: dedup.NewGuard(cfg.Store, dedup.GuardConfig{
			Lease: cfg.Lease, Retention: cfg.Retention, Wait: wait, Poll: cfg.Poll,
			StoreTimeout: cfg.StoreTimeout, Keyring: cfg.Keyring,
		}),
	}, nil
}

// Close ends the renewal of claims, and cancels handlers that still run.
func (m *Middleware) Close() { m.guard.Close() }

// Handler wraps handlers, so that their requests run once for each key. Requests of other
// methods, upgrades, and requests without a key where that is allowed go to the handler
// unchanged.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !m.covers(r) {
			next.ServeHTTP(w, r)
			return
		}
		m.checkServer(r)
		q, ok := m.looked(w, r)
		if !ok {
			return
		}
		defer m.release(q)
		if !m.admit(q) {
			q.retryLater(w)
			q.refuse(w, Refused, http.StatusTooManyRequests, "too_many_keys",
				"Too many requests with idempotency keys are being processed.")
			return
		}
		defer m.leave(q)
		m.enter(w, q, next)
	})
}

// Lookup answers requests without a claim if the key is done, or used with another payload. All
// other requests go to next. A look-up costs one round trip to the store. Put Lookup in front of
// a rate limiter, and Handler of the same middleware behind the limiter. Then replays do not
// count in the limit. Random keys of an attacker write to the store only as often as the limiter
// permits.
func (m *Middleware) Lookup(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.look == nil || !m.covers(r) {
			next.ServeHTTP(w, r)
			return
		}
		q, ok := m.begin(w, r)
		if !ok {
			return
		}
		defer m.release(q) // after Handler has returned
		switch a := q.look(); a.Verdict {
		case dedup.Done, dedup.Conflict, dedup.Dead:
			q.reply(w, a)
		default:
			r := q.r.WithContext(context.WithValue(q.r.Context(), requestKey{}, q))
			defer removeFiles(r, r.MultipartForm)
			next.ServeHTTP(w, r)
		}
	})
}

// look asks the store about the key. The answer is zero if the store has no record, or fails.
func (q *request) look() dedup.Answer {
	var answers [1]dedup.Answer
	req := dedup.Request{
		Key: q.call.Key, Fingerprint: q.call.Fingerprint,
		SecondFingerprint: q.call.SecondFingerprint, Retention: q.m.cfg.Retention, AnyAge: true,
	}
	began := time.Now()
	err := q.m.guard.Ask(q.r.Context(), func(ctx context.Context) error {
		return q.m.look(ctx, []dedup.Request{req}, answers[:])
	})
	if err == nil {
		if answers[0].Result, err = q.m.cfg.Keyring.Open(req.Key, answers[0].Result); err != nil {
			return dedup.Answer{} // Handler meets the error too, and answers
		}
		return answers[0]
	}
	if !q.m.tx && errors.Is(err, dedup.ErrUnavailable) &&
		time.Since(began) >= q.m.cfg.StoreTimeout {
		q.lookErr = err
	}
	return dedup.Answer{} // a late call may still write to answers
}

type requestKey struct{}

// covers reports whether a request needs a key. covers does not allocate.
func (m *Middleware) covers(r *http.Request) bool {
	switch {
	case slices.Contains(m.cfg.OptionalMethods, r.Method):
		return len(r.Header[m.cfg.Header]) > 0
	case !slices.Contains(m.cfg.Methods, r.Method):
		return false
	case len(r.Header[m.cfg.Header]) > 0:
		return true // an upgrade too: a header must not switch the protection off
	case m.cfg.Optional:
		return false
	default:
		return r.Header["Upgrade"] == nil || !isUpgrade(r)
	}
}

// isUpgrade reports whether the connection is to be used for another protocol. An offer of h2c does
// not count: some clients send one with the first request of a connection, and servers ignore the
// offer.
func isUpgrade(r *http.Request) bool {
	if strings.EqualFold(r.Header.Get("Upgrade"), "h2c") {
		return false
	}
	for _, line := range r.Header["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}

// looked returns the request of Lookup, or begins a new one. The request of Lookup is only for the
// request that it passed on, not for others that the handler sends through the same middleware with
// its context.
func (m *Middleware) looked(w http.ResponseWriter, r *http.Request) (q *request, ok bool) {
	q, ok = r.Context().Value(requestKey{}).(*request)
	if !ok || q.m != m || !slices.Equal(q.lines, r.Header[m.cfg.Header]) ||
		!q.taken.CompareAndSwap(false, true) {
		return m.begin(w, r)
	}
	q.r = r
	if r.Body == q.left {
		q.rewind() // a middleware between the two may have read it
		return q, true
	}
	// A middleware between the two has replaced the body; the handler reads the replacement. The
	// fingerprint stays that of the client's body.
	status, code, err := q.read(w)
	return q.known(w, status, code, err)
}

// begin identifies the request, or answers it.
func (m *Middleware) begin(w http.ResponseWriter, r *http.Request) (q *request, ok bool) {
	one := &request{m: m, r: r, began: time.Now(), state: &state{}}
	defer func() {
		if !ok { // refused, or a panic in a function of the Config or in the body
			m.release(one)
		}
	}()
	status, code, err := one.identify(w)
	return one.known(w, status, code, err)
}

// admit counts the running keys of a principal. Further requests with a running key do not count
// (rule 21).
func (m *Middleware) admit(q *request) bool {
	if m.cfg.Public {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := m.live[q.who]
	if keys[q.call.Key] == 0 && len(keys) >= m.cfg.MaxLiveKeys {
		return false
	}
	if keys == nil {
		keys = make(map[dedup.Key]int)
		m.live[q.who] = keys
	}
	keys[q.call.Key]++
	return true
}

func (m *Middleware) leave(q *request) {
	if m.cfg.Public {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := m.live[q.who]
	if keys[q.call.Key]--; keys[q.call.Key] <= 0 {
		delete(keys, q.call.Key)
	}
	if len(keys) == 0 {
		delete(m.live, q.who)
	}
}

// keeps reports whether a response header is replayed.
func (m *Middleware) keeps(name string) bool { return m.kept[name] }

// checkServer warns once about a server that closes connections before a keyed request may end: the
// handler would run, and its client would see a broken connection.
func (m *Middleware) checkServer(r *http.Request) {
	if m.warned.Load() {
		return
	}
	srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	longest := m.cfg.longest()
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

// longest returns the time that a keyed request may take if its handler ends in time. With
// StreamOnFlush the record of an answer may be tried twice. So may that of an answer above
// MaxBuffer, which is too rare to count.
func (c *Config) longest() time.Duration {
	longest := c.StoreTimeout + c.Wait + c.Timeout + recordTime
	if c.StreamOnFlush {
		longest += recordTime
	}
	return longest
}

// recordTime is the time in which a [dedup.Entry] tries to record its end.
const recordTime = 10 * time.Second
