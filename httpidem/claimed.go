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
	err := q.away
	if err == nil {
		entry, a, err = m.guard.Enter(q.r.Context(), q.call)
	}
	if err == nil {
		q.storeUp()
	}
	switch {
	case err != nil && q.r.Context().Err() != nil: // the client has gone while it waited, or closed its half of the connection
		q.notRun(w, err)
	case errors.Is(err, dedup.ErrUnavailable) && m.cfg.FailOpen:
		q.storeDown(slog.LevelWarn, "requests run without the idempotency store", err)
		q.unguarded(w, next, err)
	case err != nil:
		q.unavailable(w, err)
	case entry == nil:
		q.reply(w, a)
	case a.Verdict == dedup.Uncertain && !m.cfg.Rerun:
		_ = entry.Release(q.r.Context(), dedup.Unstarted) // if it does not arrive, the lease ends it
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
	next.ServeHTTP(w, q.r)
	result = Unguarded
}

// claimedRun is one run of a handler under a claim.
type claimedRun struct {
	q     *request
	entry *dedup.Entry
	rec   *recorder
	early error  // of storing that an answer left early
	alone func() // nothing that happens to the claim counts for the handler from then on
}

func (c *claimedRun) run(w http.ResponseWriter, next http.Handler) {
	q, cfg := c.q, &c.q.m.cfg
	c.rec = newRecorder(w, q.r, cfg.MaxBuffer, cfg.StreamOnFlush, c.leaveEarly)
	// No child of the entry's context, which ends with the entry: a handler whose answer left early goes on after that.
	ctx, lost := context.WithCancelCause(context.WithoutCancel(q.r.Context()))
	defer lost(nil)
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	unfollow := context.AfterFunc(c.entry.Context(), func() { lost(context.Cause(c.entry.Context())) })
	defer unfollow()
	// A handler that does not end when it is told to must not keep its key for ever.
	hung := time.AfterFunc(cfg.Timeout+cfg.Lease, func() {
		cfg.Logger.ErrorContext(ctx, "handler does not end, its outcome counts as unknown", "idempotency_key", q.state.header)
		_ = c.entry.Release(ctx, dedup.Unknown)
	})
	defer hung.Stop()
	c.alone = func() {
		unfollow()
		hung.Stop()
	}
	// Nothing of it happens to an entry that has ended. What a ResultPolicy that panics leaves behind must not be renewed for ever.
	defer func() { _ = c.entry.Release(ctx, dedup.Unknown) }()
	returned := false
	q.ran = time.Now()
	defer func() {
		if !returned { // a panic, which goes on from here, or the goroutine ends
			c.broke()
		}
	}()
	next.ServeHTTP(c.rec, q.r.WithContext(ctx))
	returned = true
	c.alone()
	c.ended()
}

// ended stores the answer, then lets it go.
func (c *claimedRun) ended() {
	q, ctx := c.q, c.q.r.Context()
	a, streamed := c.rec.finish()
	if streamed {
		q.observe(stored(c.early), a.status, c.early)
		return
	}
	q.checkCORS(c.rec)
	if q.resultPolicy(a.status, false) == Forget {
		err := c.entry.Release(ctx, c.q.forgotten())
		c.log("answer is not kept, but the key could not be released", err)
		c.rec.send()
		q.observe(Forgotten, a.status, err)
		return
	}
	err := c.entry.Complete(ctx, a.result(q.m.keeps, q.m.cfg.MaxResponse))
	c.log("answer could not be stored: the outcome of its key is unknown to later requests", err)
	c.rec.send()
	q.observe(stored(err), a.status, err)
}

// forgotten is how a claim is given back whose answer is not kept. Where nothing has happened the key may come with another
// payload (H-11).
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

// leaveEarly stores that the request was answered, before the first byte of an answer leaves that cannot be held back. A handler
// that has said NotApplied is not kept, whatever it answers.
func (c *claimedRun) leaveEarly(a *answer) error {
	c.alone()
	if c.q.resultPolicy(a.status, false) == Forget {
		c.early = c.entry.Release(c.q.r.Context(), c.q.forgotten())
	} else {
		c.early = c.entry.Complete(c.q.r.Context(), a.result(c.q.m.keeps, c.q.m.cfg.MaxResponse))
	}
	c.log("answer leaves although it could not be stored", c.early)
	return nil
}

// broke stores what a request with the key is answered after its handler panicked: what the client saw was a broken
// connection, and nobody knows what had happened (H-09).
func (c *claimedRun) broke() {
	q, ctx := c.q, c.q.r.Context()
	var err error
	if _, streamed := c.rec.finish(); streamed {
		err = c.early
	} else if q.state.notApplied.Load() {
		err = c.entry.Release(ctx, c.q.forgotten())
	} else {
		err = c.entry.Complete(ctx, q.panicked().result(q.m.keeps, q.m.cfg.MaxResponse))
	}
	c.log("handler panicked, and its key could not be ended", err)
	q.observe(Panicked, 0, err)
}

func (c *claimedRun) log(text string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		c.q.m.cfg.Logger.ErrorContext(c.q.r.Context(), text, "idempotency_key", c.q.state.header, "error", safetext.Line(err))
	}
}
