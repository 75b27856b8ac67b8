package httpidem

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/safetext"
)

// claimed runs the handler under a claim.
func (m *Middleware) claimed(w http.ResponseWriter, q *request, next http.Handler) {
	var entry *dedup.Entry
	var a dedup.Answer
	err := q.lookErr
	if err == nil {
		entry, a, err = m.guard.Enter(q.r.Context(), q.call)
	}
	if err == nil || errors.Is(err, dedup.ErrSealed) {
		q.storeUp()
	}
	switch {
	case errors.Is(err, dedup.ErrSealed):
		q.sealed(w, err)
	// the client has gone during the wait, or closed its half of the connection
	case err != nil && q.r.Context().Err() != nil:
		q.notRun(w, err)
	case errors.Is(err, dedup.ErrUnavailable) && m.cfg.FailOpen:
		q.storeDown(slog.LevelWarn, "requests run without the idempotency store", err)
		q.unguarded(w, next, err)
	case err != nil:
		q.unavailable(w, err)
	case entry == nil:
		q.reply(w, a)
	case a.Verdict == dedup.Uncertain && !m.cfg.Rerun:
		// if the release is lost, the lease ends the claim
		_ = entry.Release(q.r.Context(), dedup.Unstarted)
		q.reply(w, a)
	default:
		if err := entry.Begin(q.r.Context()); err != nil {
			q.unavailable(w, err)
			return
		}
		(&claimedRun{q: q, entry: entry}).run(w, next)
	}
}

// unguarded runs the handler without the store.
func (q *request) unguarded(w http.ResponseWriter, next http.Handler, err error) {
	result := Panicked
	defer func() { q.observe(result, 0, err) }()
	q.ran = time.Now()
	defer removeFiles(q.r, q.r.MultipartForm)
	next.ServeHTTP(w, q.r)
	result = Unguarded
}

// claimedRun is one run of a handler under a claim.
type claimedRun struct {
	q     *request
	entry *dedup.Entry
	rec   *recorder
	// record is the stored form of an answer that is sent early, and early the error of storing it.
	// After an error the claim is kept, and the record is tried again when the handler has ended.
	record dedup.Result
	early  error
	// forget: the answer is sent early and not stored, so the claim is kept until the handler ends
	forget bool
	hung   *time.Timer // takes the key from a handler that ignores the end of its context
}

func (c *claimedRun) run(w http.ResponseWriter, next http.Handler) {
	q, cfg := c.q, &c.q.m.cfg
	c.rec = newRecorder(w, q.r, cfg.MaxBuffer, cfg.StreamOnFlush, c.leaveEarly)
	// Not derived from the entry's context, which ends with the entry: a handler continues after
	// the end of the entry if an answer that was sent early is stored.
	ctx, lost := context.WithCancelCause(context.WithoutCancel(q.r.Context()))
	defer lost(nil)
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	unfollow := context.AfterFunc(c.entry.Context(), func() {
		if cause := context.Cause(c.entry.Context()); cancelsHandler(cause) {
			lost(cause)
		}
	})
	defer unfollow()
	// A handler that ignores the end of its context must not keep the key for ever.
	c.hung = time.AfterFunc(cfg.Timeout+cfg.Lease, func() {
		cfg.Logger.ErrorContext(
			ctx, "handler still runs after its time-out, its outcome is recorded as unknown",
			"idempotency_key", q.state.header,
		)
		_ = c.entry.Release(ctx, dedup.Unknown)
	})
	defer c.hung.Stop()
	// Release has no effect on an ended entry. After a panic of a ResultPolicy, Release ends the
	// renewal.
	defer func() { _ = c.entry.Release(ctx, dedup.Unknown) }()
	returned := false
	q.ran = time.Now()
	defer func() {
		// A panic, which continues after this function, or the end of the goroutine.
		if !returned {
			c.broke()
		}
	}()
	r := q.r.WithContext(ctx)
	defer removeFiles(r, r.MultipartForm)
	next.ServeHTTP(c.rec, r)
	returned = true
	c.hung.Stop()
	c.ended()
}

// cancelsHandler reports whether a handler is cancelled when the context of its entry has ended for
// this cause. The loss of the claim and the close of the middleware cancel the handler. The end of
// the entry ([context.Canceled]) does not.
func cancelsHandler(cause error) bool {
	return errors.Is(cause, dedup.ErrClaimLost) ||
		errors.Is(cause, dedup.ErrLeaseRenewerClosed)
}

// ended stores the answer, then sends it.
func (c *claimedRun) ended() {
	q, ctx := c.q, c.q.r.Context()
	a, streamed := c.rec.finish()
	if streamed && !c.forget {
		err := c.storeEarly()
		q.observe(stored(err), a.status, err)
		return
	}
	if !streamed {
		q.checkCORS(c.rec)
	}
	if c.forget || q.resultPolicy(a.status, false) == Forget {
		err := c.entry.Release(ctx, c.q.forgotten())
		c.log("answer is not stored, but the key could not be released", err)
		c.rec.send()
		q.observe(Forgotten, a.status, err)
		return
	}
	err := c.entry.Complete(ctx, a.result(q.m.keeps, q.m.cfg.MaxResponse))
	c.log("answer could not be stored: the outcome of its key is unknown to later requests", err)
	c.rec.send()
	q.observe(stored(err), a.status, err)
}

// forgotten returns the outcome of a claim without a stored answer. If no change was applied,
// the key may come with another payload (H-11).
func (q *request) forgotten() dedup.Outcome {
	if q.state.notApplied.Load() {
		return dedup.Undone
	}
	return dedup.Failed
}

func stored(err error) Result {
	if err != nil {
		return Unstored
	}
	return Executed
}

// leaveEarly records the answer before the first byte of an answer is sent that cannot be held
// back. If no answer is to be stored, as after NotApplied, or the store does not take the record,
// the key is free only when the handler has ended: a retry must not run beside it.
func (c *claimedRun) leaveEarly(a *answer) error {
	if c.forget = c.q.resultPolicy(a.status, false) == Forget; c.forget {
		return nil
	}
	c.record = a.result(c.q.m.keeps, c.q.m.cfg.MaxResponse)
	if c.early = c.entry.TryComplete(c.q.r.Context(), c.record); c.early == nil {
		c.hung.Stop() // the handler no longer holds the key
	}
	c.log("answer is sent although it could not be stored", c.early)
	return nil
}

// storeEarly stores the record of an answer that was sent early, unless the store has it already.
func (c *claimedRun) storeEarly() error {
	if c.early == nil {
		return nil
	}
	err := c.entry.Complete(c.q.r.Context(), c.record)
	c.log("answer could not be stored: the outcome of its key is unknown to later requests", err)
	return err
}

// broke stores the answer to later requests after the handler panicked. The client has seen a
// broken connection, and the outcome is unknown (H-09).
func (c *claimedRun) broke() {
	q, ctx := c.q, c.q.r.Context()
	var err error
	if _, streamed := c.rec.finish(); streamed && !c.forget {
		err = c.storeEarly()
	} else if q.state.notApplied.Load() {
		err = c.entry.Release(ctx, c.q.forgotten())
	} else {
		err = c.entry.Complete(ctx, q.panicked().result(q.m.keeps, q.m.cfg.MaxResponse))
	}
	c.log("handler panicked, and its outcome could not be stored", err)
	q.observe(Panicked, 0, err)
}

func (c *claimedRun) log(text string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		c.q.m.cfg.Logger.ErrorContext(c.q.r.Context(), text, "idempotency_key", c.q.state.header,
			"error", safetext.Line(err))
	}
}
