package httpidem

import (
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/safetext"
)

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
	if q.m.cfg.ReplayWith200 && a.status < 300 && a.status != http.StatusPartialContent {
		a.status = http.StatusOK
	}
	a.replay(w)
	q.observe(Replayed, a.status, nil)
}

// sealed answers if the stored answer cannot be opened. The handler has run, and must not run
// again.
func (q *request) sealed(w http.ResponseWriter, err error) {
	q.logSparsely("stored answers cannot be opened: the keyring lacks a key, or the store was changed",
		slog.String("idempotency_key", q.state.header), slog.String("error", safetext.Line(err)))
	const status = http.StatusInternalServerError
	q.problem(status, "answer_sealed",
		"A request with this key was answered, but its answer cannot be read now. It will not be "+
			"run again.").write(w)
	q.observe(NotReplayable, status, err)
}

// retryLater sets Retry-After.
func (q *request) retryLater(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(q.m.cfg.RetryAfter.Seconds()))))
}

// notRun answers a client after the connection was closed before the run of the handler. The
// client may still read; without this, the server would send 200.
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
	if over, lasted, requests := q.m.outage.recovered(); over {
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

// panicked returns the stored answer for a handler without an answer.
func (q *request) panicked() *answer {
	return q.problem(http.StatusInternalServerError, "handler_panicked",
		"The request failed unexpectedly, and may have had its effect.").answer()
}

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
	if status == http.StatusUnauthorized {
		q.challenge(w)
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
