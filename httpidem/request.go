package httpidem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
)

// request is a running keyed request.
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

	form *multipart.Form // parsed by Config.Fingerprint; nil: none
}

// rewind makes the body readable from its beginning.
func (q *request) rewind() { q.r.Body = newBody(q.body) }

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
		err := cfg.Fingerprint(q.r, p)
		if r.MultipartForm == nil {
			q.form = q.r.MultipartForm
		}
		if err != nil {
			return q.refusedBy("Fingerprint", http.StatusBadRequest, "payload_invalid", err)
		}
		q.rewind() // Fingerprint may have read the body
	}
	form, parsed := parsedForm(q.r, q.body)
	q.call.Fingerprint = payloadFingerprint(cfg.Secret, q.who.tenant, p, form, parsed)
	if cfg.SecondSecret != nil {
		q.call.SecondFingerprint =
			payloadFingerprint(cfg.SecondSecret, q.who.tenant, p, form, parsed)
	}
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

// read reads the body of the request, and leaves a copy in its place.
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

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
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

// resultPolicy decides about an answer. A status in ForgetStatus acts like NotApplied, and so does
// a forgotten redirect that keeps the method: its request comes again with another path.
func (q *request) resultPolicy(status int, tx bool) ResultPolicy {
	if slices.Contains(q.m.cfg.ForgetStatus, status) {
		q.state.notApplied.Store(true)
		return Forget
	}
	policy := q.m.cfg.ResultPolicy(q.r,
		Outcome{Status: status, NotApplied: q.state.notApplied.Load(), Tx: tx})
	if policy == Forget && sendsElsewhere(status) {
		q.state.notApplied.Store(true)
	}
	return policy
}
