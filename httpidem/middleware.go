package httpidem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/safetext"
)

// Middleware answers requests with an idempotency key once. It is safe for concurrent use. Make it with [New] or [NewTx], and
// Close it after the server was shut down.
type Middleware struct {
	cfg   Config
	guard *dedup.Guard
	enter door
	tx    bool                                                         // made by NewTx
	look  func(context.Context, []dedup.Request, []dedup.Answer) error // nil: the store cannot

	kept map[string]bool // response headers that are replayed

	outage outage      // of the store
	warned atomic.Bool // of the server's time-out
	sparse sparse      // log lines that any request may cause

	load load

	mu   sync.Mutex
	live map[owner]map[dedup.Key]int // by who asks, how many requests are at each key
}

// owner is who a key belongs to: the same name in two tenants is two principals.
type owner struct{ tenant, principal string }

// door runs the handler of a request, or answers for it.
type door func(w http.ResponseWriter, q *request, next http.Handler)

// New returns a middleware that claims keys: for effects outside a database. Its error names everything that is wrong with cfg.
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
			Lease: cfg.Lease, Retention: cfg.Retention, Wait: wait, Poll: cfg.Poll, StoreTimeout: cfg.StoreTimeout,
		}),
	}, nil
}

// Close ends the renewal of claims. Handlers that still run are cancelled.
func (m *Middleware) Close() { m.guard.Close() }

// request is a keyed request on its way.
type request struct {
	m     *Middleware
	r     *http.Request
	began time.Time
	call  dedup.Call
	state *state
	who   owner
	body  []byte
	away  error     // of a look that took all the time that the store has: it is not asked again
	told  bool      // observed
	ran   time.Time // when the handler began, the last time; zero: it has not

	lines []string      // of the header that has the key
	left  io.ReadCloser // what was put in the place of the body
	taken atomic.Bool   // Handler has it from Lookup
	held  held
}

// rewind lets the body be read from its beginning.
func (q *request) rewind() { q.r.Body = newBody(q.body) }

// Handler wraps the handlers whose requests are to run once for each key. Requests of other methods, upgrades, and requests without a key
// where that is allowed pass untouched.
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
		defer m.unseat(q)
		if !m.admit(q) {
			q.retryLater(w)
			q.refuse(w, Refused, http.StatusTooManyRequests, "too_many_keys", "Too many requests with idempotency keys are at work.")
			return
		}
		defer m.leave(q)
		m.enter(w, q, next)
	})
}

// Lookup answers requests whose key is done, or used with another payload, without a claim; all others go on to next. It costs one
// round trip to the store. Put it before a rate limiter, and Handler of the same middleware behind it: replays are free then, and
// an attacker's random keys are written only as often as the limiter lets them pass (rule 21).
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
		defer m.unseat(q) // not before Handler has returned
		switch a := q.look(); a.Verdict {
		case dedup.Done, dedup.Conflict, dedup.Dead:
			q.reply(w, a)
		default:
			next.ServeHTTP(w, q.r.WithContext(context.WithValue(q.r.Context(), requestKey{}, q)))
		}
	})
}

// look asks what is known of the key. The answer is zero if nothing is, or if the store cannot say.
func (q *request) look() dedup.Answer {
	var answers [1]dedup.Answer
	req := dedup.Request{Key: q.call.Key, Fingerprint: q.call.Fingerprint, Retention: q.m.cfg.Retention, AnyAge: true}
	began := time.Now()
	err := q.m.guard.Ask(q.r.Context(), func(ctx context.Context) error {
		return q.m.look(ctx, []dedup.Request{req}, answers[:])
	})
	if err == nil {
		return answers[0]
	}
	if !q.m.tx && errors.Is(err, dedup.ErrUnavailable) && time.Since(began) >= q.m.cfg.StoreTimeout {
		q.away = err
	}
	return dedup.Answer{} // answers may still be written
}

type requestKey struct{}

// covers reports whether a request is one of those that keys are for. It allocates nothing.
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

// isUpgrade reports whether the connection is to be used for something else than HTTP. An offer of h2c is none: some clients send it with
// the first request of a connection, whatever that is, and servers ignore it.
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

// looked is begin, if Lookup has not done it. What it found is for the request that it passed on, not for others that the handler of that
// one sends through the same middleware with its context.
func (m *Middleware) looked(w http.ResponseWriter, r *http.Request) (q *request, ok bool) {
	q, ok = r.Context().Value(requestKey{}).(*request)
	if !ok || q.m != m || !slices.Equal(q.lines, r.Header[m.cfg.Header]) || !q.taken.CompareAndSwap(false, true) {
		return m.begin(w, r)
	}
	q.r = r
	if r.Body == q.left {
		q.rewind() // something between the two may have read it
		return q, true
	}
	// Another body has been put there since, which is the handler's from now on. The fingerprint stays that of what the client sent.
	status, code, err := q.read(w)
	return q.known(w, status, code, err)
}

// begin finds out what the request is remembered by. If it cannot, the request is answered.
func (m *Middleware) begin(w http.ResponseWriter, r *http.Request) (q *request, ok bool) {
	one := &request{m: m, r: r, began: time.Now(), state: &state{}}
	defer func() {
		if !ok { // refused, or a function of the Config or the body has panicked: nobody else gives back what it holds
			m.unseat(one)
		}
	}()
	status, code, err := one.identify(w)
	return one.known(w, status, code, err)
}

// known is q, unless there is an error, which is answered.
func (q *request) known(w http.ResponseWriter, status int, code string, err error) (*request, bool) {
	if err == nil {
		return q, true
	}
	q.m.unseat(q)
	if status == http.StatusBadRequest && q.m.cfg.DocsURL != "" {
		w.Header().Add("Link", "<"+q.m.cfg.DocsURL+`>; rel="describedby"`)
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		q.retryLater(w)
	}
	failed, ok := errors.AsType[*failedCheck](err)
	switch {
	case !ok:
		q.refuse(w, Refused, status, code, err.Error())
	case q.r.Context().Err() != nil: // the client has gone while it was checked
		q.notRun(w, failed.cause)
	default:
		q.problem(status, code, err.Error()).write(w)
		q.observe(Unavailable, status, failed.cause)
	}
	return nil, false
}

// identify returns the status and code of the answer with its error.
func (q *request) identify(w http.ResponseWriter) (status int, code string, err error) {
	cfg, r := &q.m.cfg, q.r
	values := r.Header[cfg.Header]
	q.lines = values
	if len(values) == 0 {
		return http.StatusBadRequest, "idempotency_key_missing", clientError("This request needs the header " + cfg.Header + ": a UUID of your own for each operation, the same for each retry of it.")
	}
	key, err := parseKey(values, cfg.Syntax, cfg.UUIDOnly)
	if err != nil {
		return http.StatusBadRequest, "idempotency_key_invalid", err
	}
	if status, code, err := q.admitOwner(); err != nil {
		return status, code, err
	}
	q.state.header, q.state.key = key, storeKey(cfg.Scope, q.who, key)
	if q.state.key.Validate() != nil {
		return q.serverMistake("store_key_invalid", "the key that a request would be remembered by is none")
	}
	q.call = dedup.Call{Key: q.state.key, Detached: true}
	if status, code, err := q.m.seat(q); err != nil {
		return status, code, err
	}
	came := r.Body
	status, code, err = q.read(w) // of the server's own request: only there trailers appear
	q.r = r.WithContext(dedup.WithParent(context.WithValue(r.Context(), stateKey{}, q.state), q.state.key))
	switch {
	case err != nil:
		return status, code, err
	case cfg.AnyPayload:
		q.share(r)
		return 0, "", nil
	}
	if status, code, err := q.whole(came); err != nil {
		return status, code, err
	}
	p := newPayload(q.r, q.body)
	if cfg.Fingerprint != nil {
		if err := cfg.Fingerprint(q.r, p); err != nil {
			return q.refusedBy("Fingerprint", http.StatusBadRequest, "payload_invalid", err)
		}
		q.rewind() // it may have read the body
	}
	form, parsed := parsedForm(q.r, q.body)
	q.call.Fingerprint = payloadFingerprint(cfg.Secret, q.who.tenant, p, form, parsed)
	q.share(r)
	return 0, "", nil
}

// whole refuses a body of which something in front may have read all or a part: any two of them would be the same (H-03).
func (q *request) whole(came io.ReadCloser) (status int, code string, err error) {
	const advice = "put httpidem in front, or put the body back and set ContentLength"
	state := stateOfBody(q.r, came, int64(len(q.body)))
	if state == bodyWhole {
		return 0, "", nil
	}
	q.logSparsely("body of a keyed request may have been read by something in front of the middleware, which cannot compare it: "+advice,
		slog.Int64("content_length", q.r.ContentLength), slog.Int("read", len(q.body)))
	if state == bodyUnclear {
		return http.StatusLengthRequired, "length_required", clientError("The request has an empty body of unknown length. Send Content-Length: 0 if it has none.")
	}
	return http.StatusInternalServerError, "body_consumed", clientError("The request could not be compared with others of its key.")
}

// read takes the body of the request, and leaves one like it.
func (q *request) read(w http.ResponseWriter) (status int, code string, err error) {
	max, came := q.m.cfg.MaxBody, q.r.Body
	if came != nil && came != http.NoBody {
		q.r.Body = &chargedBody{came, q}
	}
	q.body, err = readBody(w, q.r, max)
	q.left = q.r.Body
	switch {
	case err == nil:
		return 0, "", nil
	case errors.Is(err, errOverloaded):
		return overloaded()
	case isTooLarge(err):
		return http.StatusRequestEntityTooLarge, "body_too_large", clientError(fmt.Sprintf("A request with an idempotency key may have %d bytes.", max))
	default:
		return http.StatusBadRequest, "body_unreadable", clientError("The body of the request did not come to its end.")
	}
}

// admitOwner finds out who asks, and whether he may.
func (q *request) admitOwner() (status int, code string, err error) {
	cfg, r := &q.m.cfg, q.r
	if cfg.Tenant != nil {
		if q.who.tenant, err = cfg.Tenant(r); err != nil {
			return q.refusedBy("Tenant", http.StatusBadRequest, "tenant_unknown", err)
		}
		if len(q.who.tenant) > dedup.MaxPart || !isText(q.who.tenant) {
			return q.serverMistake("tenant_invalid", fmt.Sprintf("Config.Tenant returned a tenant that is no UTF-8 text of at most %d bytes without NUL", dedup.MaxPart))
		}
	}
	if cfg.Principal != nil {
		q.who.principal, err = cfg.Principal(r)
		switch {
		case err != nil:
			return q.refusedBy("Principal", http.StatusUnauthorized, "principal_unknown", err)
		case q.who.principal == "" || !isText(q.who.principal):
			// All whom a mistake leaves without a name would share their keys; other bytes than text cannot be kept.
			return http.StatusUnauthorized, "principal_unknown", clientError("It is not known who sends this request.")
		case isCredential(q.who.principal):
			return q.serverMistake("principal_invalid", "Config.Principal returned a credential, such as a bearer token: return the user that it stands for")
		case cfg.PrincipalSecret != nil:
			q.who.principal = HashPrincipal(cfg.PrincipalSecret, q.who.principal)
		}
	}
	if cfg.Authorize != nil {
		if err := cfg.Authorize(r); err != nil {
			return q.refusedBy("Authorize", http.StatusForbidden, "not_allowed", err)
		}
	}
	return 0, "", nil
}

// isText reports whether a part of a key can be stored: valid UTF-8 without NUL.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// keyType is the type of all keys of requests. Method and route are no part of the identity: the same key for another operation
// is a mistake of the client, and told so by the fingerprint.
const keyType = "http"

// storeKey is what a request is remembered by. The key is readable in the store unless it is too long beside its principal. No
// principal is the same in all requests of a middleware, or in none (H-12).
func storeKey(scope string, who owner, key string) dedup.Key {
	id := key
	if who.principal != "" {
		id = dedup.Join(who.principal, key)
	}
	if len(id) > dedup.MaxPart {
		id = dedup.Hash(who.principal, key)
	}
	return dedup.Key{Tenant: who.tenant, Scope: scope, Type: keyType, ID: id}
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

// admit counts the keys of a principal that are at work. Another request for one that is costs nothing (rule 21).
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

// reply answers with what the store said.
func (q *request) reply(w http.ResponseWriter, a dedup.Answer) {
	switch a.Verdict {
	case dedup.Done:
		q.replay(w, a.Result)
	case dedup.Conflict:
		q.refuse(w, Mismatch, http.StatusUnprocessableEntity, "request_signature_mismatch", "This key was used for another request. Use a new key for each operation.")
	case dedup.Uncertain:
		q.refuse(w, UnknownOutcome, http.StatusConflict, "unknown_outcome", "An earlier request with this key was cut short, and may have had its effect. It will not be run again.")
	case dedup.Dead:
		q.refuse(w, GivenUp, http.StatusConflict, "given_up", "This key was given up, and will not be run again.")
	default:
		q.retryLater(w)
		q.refuse(w, InFlight, http.StatusConflict, "request_in_flight", "A request with this key is still at work. Try again later.")
	}
}

func (q *request) replay(w http.ResponseWriter, r dedup.Result) {
	a, err := readAnswer(r)
	w.Header().Set(q.m.cfg.ReplayedHeader, "true")
	if err != nil || a.omitted {
		p := q.problem(http.StatusConflict, "not_replayable", "A request with this key was answered, but its answer was not kept.")
		if a != nil {
			p.OriginalStatus = a.status
		}
		p.write(w)
		q.observe(NotReplayable, p.Status, err)
		return
	}
	if q.m.cfg.ReplayWith200 && a.status < 300 {
		a.status = http.StatusOK
	}
	a.replay(w)
	q.observe(Replayed, a.status, nil)
}

// retryLater says when to come again.
func (q *request) retryLater(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(q.m.cfg.RetryAfter.Seconds()))))
}

// notRun answers a client whose connection was closed before anything ran. It may still read: a server that writes nothing says 200.
func (q *request) notRun(w http.ResponseWriter, err error) {
	q.retryLater(w)
	q.problem(http.StatusServiceUnavailable, "not_run", "The connection was closed before this request ran. Send it again, with the same key.").write(w)
	q.observe(InFlight, http.StatusServiceUnavailable, err)
}

// unavailable answers for a store that cannot be asked. Nothing was run, or all of it was rolled back.
func (q *request) unavailable(w http.ResponseWriter, err error) {
	q.storeDown(slog.LevelError, "idempotency store cannot be used, keyed requests are answered 503", err)
	q.retryLater(w)
	q.problem(http.StatusServiceUnavailable, "store_unavailable", "It cannot be found out whether this request was handled before. Try again later, with the same key.").write(w)
	q.observe(Unavailable, http.StatusServiceUnavailable, err)
}

// storeDown tells of the store that it cannot be used, if no earlier request has.
func (q *request) storeDown(level slog.Level, text string, err error) {
	if q.m.outage.met() {
		q.m.cfg.Logger.Log(q.r.Context(), level, text, "idempotency_key", q.state.header, "error", safetext.Line(err))
	}
}

// storeUp tells that it can be used again, if there was an outage.
func (q *request) storeUp() {
	if over, lasted, requests := q.m.outage.answered(); over {
		q.m.cfg.Logger.InfoContext(q.r.Context(), "idempotency store can be used again", "after", lasted, "requests", requests)
	}
}

func (q *request) refuse(w http.ResponseWriter, result Result, status int, code, detail string) {
	q.problem(status, code, detail).write(w)
	q.observe(result, status, nil)
}

func (q *request) problem(status int, code, detail string) *problem {
	p := &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail, Key: q.state.header}
	if q.m.cfg.DocsURL != "" {
		p.Type = q.m.cfg.DocsURL + "#" + code
	}
	return p
}

// panicked is the answer that is kept of a handler that gave none.
func (q *request) panicked() *answer {
	return q.problem(http.StatusInternalServerError, "handler_panicked", "The request failed unexpectedly, and may have had its effect.").answer()
}

// keeps reports whether a response header is replayed.
func (m *Middleware) keeps(name string) bool { return m.kept[name] }

func (q *request) observe(result Result, status int, err error) {
	if q.told || q.m.cfg.Observe == nil {
		return
	}
	q.told = true
	o := Observation{Request: q.r, Key: q.state.key, Result: result, Status: status, Took: time.Since(q.began), Err: err}
	o.Waited = o.Took
	if !q.ran.IsZero() {
		o.Waited = q.ran.Sub(q.began)
	}
	q.m.cfg.Observe(q.r.Context(), o)
}
