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

// Middleware answers requests with an idempotency key once. It is safe for concurrent use. Create
// it with [New] or [NewTx], and call Close after the server was shut down.
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

// owner is the owner of a key: the same name in two tenants is two principals.
type owner struct{ tenant, principal string }

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
			StoreTimeout: cfg.StoreTimeout,
		}),
	}, nil
}

// Close ends the renewal of claims, and cancels handlers that still run.
func (m *Middleware) Close() { m.guard.Close() }

// request is a keyed request in flight.
type request struct {
	m     *Middleware
	r     *http.Request
	began time.Time
	call  dedup.Call
	state *state
	who   owner
	body  []byte
	// Error of a look-up that took the whole StoreTimeout: the store is not asked again.
	lookErr  error
	observed bool      // Config.Observe was called
	ran      time.Time // when the handler began, the last time; zero: not yet

	lines []string      // of the header with the key
	left  io.ReadCloser // the replacement of the body
	taken atomic.Bool   // Handler has taken it over from Lookup
	held  held
}

// rewind makes the body readable from its beginning.
func (q *request) rewind() { q.r.Body = newBody(q.body) }

// Handler wraps the handlers whose requests run once for each key. Requests of other methods,
// upgrades, and requests without a key where that is allowed pass untouched.
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

// Lookup answers requests whose key is done, or used with another payload, without a claim. It
// passes all other requests to next. It costs one round trip to the store. Put it in front of a
// rate limiter, and Handler of the same middleware behind it: replays then do not count in the
// limit, and random keys of an attacker write to the store only as often as the limiter permits.
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
			next.ServeHTTP(w, q.r.WithContext(context.WithValue(q.r.Context(), requestKey{}, q)))
		}
	})
}

// look asks the store about the key. The answer is zero if the store has no record, or fails.
func (q *request) look() dedup.Answer {
	var answers [1]dedup.Answer
	req := dedup.Request{
		Key: q.call.Key, Fingerprint: q.call.Fingerprint, Retention: q.m.cfg.Retention,
		AnyAge: true,
	}
	began := time.Now()
	err := q.m.guard.Ask(q.r.Context(), func(ctx context.Context) error {
		return q.m.look(ctx, []dedup.Request{req}, answers[:])
	})
	if err == nil {
		return answers[0]
	}
	if !q.m.tx && errors.Is(err, dedup.ErrUnavailable) &&
		time.Since(began) >= q.m.cfg.StoreTimeout {
		q.lookErr = err
	}
	return dedup.Answer{} // a late call may still write to answers
}

type requestKey struct{}

// covers reports whether a request needs a key. It allocates nothing.
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
// not count: some clients send it with the first request of a connection, and servers ignore it.
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

// known returns q, or answers the error.
func (q *request) known(
	w http.ResponseWriter, status int, code string, err error,
) (*request, bool) {
	if err == nil {
		return q, true
	}
	q.m.release(q)
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
	case q.r.Context().Err() != nil: // the client has gone meanwhile
		q.notRun(w, failed.cause)
	default:
		q.problem(status, code, err.Error()).write(w)
		q.observe(Unavailable, status, failed.cause)
	}
	return nil, false
}

// identify returns an error with the status and the code of its answer.
func (q *request) identify(w http.ResponseWriter) (status int, code string, err error) {
	cfg, r := &q.m.cfg, q.r
	values := r.Header[cfg.Header]
	q.lines = values
	if len(values) == 0 {
		return http.StatusBadRequest, "idempotency_key_missing", clientError(
			"This request needs the header " + cfg.Header +
				": a UUID of your own for each operation, the same for each retry of it.",
		)
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
		return q.serverMistake("store_key_invalid", "the key of a request cannot be stored")
	}
	q.call = dedup.Call{Key: q.state.key, Detached: true}
	if status, code, err := q.m.acquire(q); err != nil {
		return status, code, err
	}
	came := r.Body
	status, code, err = q.read(w) // of the server's own request: trailers appear there only
	q.r = r.WithContext(dedup.WithParent(context.WithValue(r.Context(), stateKey{}, q.state),
		q.state.key))
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
		q.rewind() // Fingerprint may have read the body
	}
	form, parsed := parsedForm(q.r, q.body)
	q.call.Fingerprint = payloadFingerprint(cfg.Secret, q.who.tenant, p, form, parsed)
	q.share(r)
	return 0, "", nil
}

// whole refuses a body of which something in front may have read all or a part: any two of them
// would look equal (H-03).
func (q *request) whole(came io.ReadCloser) (status int, code string, err error) {
	const advice = "put httpidem in front, or put the body back and set ContentLength"
	state := stateOfBody(q.r, came, int64(len(q.body)))
	if state == bodyWhole {
		return 0, "", nil
	}
	q.logSparsely("body of a keyed request may have been read in front of the middleware, which "+
		"then cannot compare it: "+advice,
		slog.Int64("content_length", q.r.ContentLength), slog.Int("read", len(q.body)))
	if state == bodyUnclear {
		return http.StatusLengthRequired, "length_required", clientError(
			"The request has an empty body of unknown length. Send Content-Length: 0 if it has " +
				"none.",
		)
	}
	return http.StatusInternalServerError, "body_consumed",
		clientError("The request could not be compared with earlier ones of its key.")
}

// read reads the body of the request, and replaces it by a copy.
func (q *request) read(w http.ResponseWriter) (status int, code string, err error) {
	max, came := q.m.cfg.MaxBody, q.r.Body
	if came != nil && came != http.NoBody {
		q.r.Body = &countedBody{came, q}
	}
	q.body, err = readBody(w, q.r, max)
	q.left = q.r.Body
	switch {
	case err == nil:
		return 0, "", nil
	case errors.Is(err, errOverloaded):
		return overloaded()
	case isTooLarge(err):
		return http.StatusRequestEntityTooLarge, "body_too_large",
			clientError(fmt.Sprintf("A request with an idempotency key may have %d bytes.", max))
	default:
		return http.StatusBadRequest, "body_unreadable",
			clientError("The body of the request is incomplete.")
	}
}

// admitOwner determines the owner of the key, and checks the rights of the request.
func (q *request) admitOwner() (status int, code string, err error) {
	cfg, r := &q.m.cfg, q.r
	if cfg.Tenant != nil {
		if q.who.tenant, err = cfg.Tenant(r); err != nil {
			return q.refusedBy("Tenant", http.StatusBadRequest, "tenant_unknown", err)
		}
		if len(q.who.tenant) > dedup.MaxPart || !isText(q.who.tenant) {
			return q.serverMistake(
				"tenant_invalid", fmt.Sprintf(
					"Config.Tenant returned a tenant that is no UTF-8 text of at most %d bytes "+
						"without NUL", dedup.MaxPart,
				),
			)
		}
	}
	if cfg.Principal != nil {
		q.who.principal, err = cfg.Principal(r)
		switch {
		case err != nil:
			return q.refusedBy("Principal", http.StatusUnauthorized, "principal_unknown", err)
		case q.who.principal == "" || !isText(q.who.principal):
			// Users without a name would share their keys, and invalid text cannot be stored.
			return http.StatusUnauthorized, "principal_unknown",
				clientError("The sender of this request is not known.")
		case isCredential(q.who.principal):
			return q.serverMistake(
				"principal_invalid",
				"Config.Principal returned a credential, such as a bearer token: return the user "+
					"that it stands for",
			)
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

// keyType is the type of all keys of requests. Method and route are no part of a key: the
// fingerprint detects a key that is used for another operation.
const keyType = "http"

// storeKey returns the key of a request in the store. It is readable there unless principal and key
// are too long together. A middleware has a principal in all of its requests, or in none (H-12).
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

// admit counts the keys of a principal in flight. Further requests with a key in flight do not
// count (rule 21).
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

// reply answers with the verdict of the store.
func (q *request) reply(w http.ResponseWriter, a dedup.Answer) {
	switch a.Verdict {
	case dedup.Done:
		q.replay(w, a.Result)
	case dedup.Conflict:
		q.refuse(w, Mismatch, http.StatusUnprocessableEntity, "request_signature_mismatch",
			"This key was used for another request. Use a new key for each operation.")
	case dedup.Uncertain:
		q.refuse(
			w, UnknownOutcome, http.StatusConflict, "unknown_outcome",
			"An earlier request with this key was cut short, and may have had its effect. It "+
				"will not be run again.",
		)
	case dedup.Dead:
		q.refuse(w, GivenUp, http.StatusConflict, "given_up",
			"This key was given up. Its request will not be run again.")
	default:
		q.retryLater(w)
		q.refuse(w, InFlight, http.StatusConflict, "request_in_flight",
			"A request with this key is still being processed. Try again later.")
	}
}

func (q *request) replay(w http.ResponseWriter, r dedup.Result) {
	a, err := readAnswer(r)
	w.Header().Set(q.m.cfg.ReplayedHeader, "true")
	if err != nil || a.omitted {
		p := q.problem(http.StatusConflict, "not_replayable",
			"A request with this key was answered, but its answer was not stored.")
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

// retryLater sets Retry-After.
func (q *request) retryLater(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(q.m.cfg.RetryAfter.Seconds()))))
}

// notRun answers a client whose connection was closed before the handler ran. The client may still
// read; without this, the server would send 200.
func (q *request) notRun(w http.ResponseWriter, err error) {
	q.retryLater(w)
	q.problem(
		http.StatusServiceUnavailable, "not_run",
		"The connection was closed before this request ran. Send it again, with the same key.",
	).write(w)
	q.observe(InFlight, http.StatusServiceUnavailable, err)
}

// unavailable answers if the store cannot be used. No handler ran, or its transaction was rolled
// back.
func (q *request) unavailable(w http.ResponseWriter, err error) {
	q.storeDown(slog.LevelError,
		"idempotency store cannot be used, keyed requests are answered 503", err)
	q.retryLater(w)
	q.problem(
		http.StatusServiceUnavailable, "store_unavailable",
		"The server cannot check whether this request was handled before. Try again later, with "+
			"the same key.",
	).write(w)
	q.observe(Unavailable, http.StatusServiceUnavailable, err)
}

// storeDown logs the beginning of an outage.
func (q *request) storeDown(level slog.Level, text string, err error) {
	if q.m.outage.met() {
		q.m.cfg.Logger.Log(q.r.Context(), level, text, "idempotency_key", q.state.header, "error",
			safetext.Line(err))
	}
}

// storeUp logs the end of an outage.
func (q *request) storeUp() {
	if over, lasted, requests := q.m.outage.answered(); over {
		q.m.cfg.Logger.InfoContext(q.r.Context(), "idempotency store can be used again", "after",
			lasted, "requests", requests)
	}
}

func (q *request) refuse(w http.ResponseWriter, result Result, status int, code, detail string) {
	q.problem(status, code, detail).write(w)
	q.observe(result, status, nil)
}

func (q *request) problem(status int, code, detail string) *problem {
	p := &problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code,
		Detail: detail, Key: q.state.header,
	}
	if q.m.cfg.DocsURL != "" {
		p.Type = q.m.cfg.DocsURL + "#" + code
	}
	return p
}

// panicked returns the stored answer for a handler that gave none.
func (q *request) panicked() *answer {
	return q.problem(http.StatusInternalServerError, "handler_panicked",
		"The request failed unexpectedly, and may have had its effect.").answer()
}

// keeps reports whether a response header is replayed.
func (m *Middleware) keeps(name string) bool { return m.kept[name] }

func (q *request) observe(result Result, status int, err error) {
	if q.observed || q.m.cfg.Observe == nil {
		return
	}
	q.observed = true
	o := Observation{
		Request: q.r, Key: q.state.key, Result: result, Status: status, Took: time.Since(q.began),
		Err: err,
	}
	o.Waited = o.Took
	if !q.ran.IsZero() {
		o.Waited = q.ran.Sub(q.began)
	}
	q.m.cfg.Observe(q.r.Context(), o)
}
