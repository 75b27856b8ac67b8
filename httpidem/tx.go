package httpidem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/safetext"
)

// NewTx returns a middleware with handlers that share one transaction with the claim of their
// key and the stored answer. The handler gets the transaction from [TxFrom], with the type of
// the Store's transactions (pgx.Tx for pgstore). The answer is sent after the commit only.
//
//	m, err := httpidem.NewTx[pgx.Tx](cfg)
//
// A transaction that the database refuses, or that the handler left aborted, is rolled back and
// forgotten. The client gets 500 or 503, and the same request, sent again, runs again. NewTx
// fails if the Store has no transactions of type Tx, or if cfg has FailOpen, Rerun or
// StreamOnFlush.
func NewTx[Tx any](cfg Config) (*Middleware, error) {
	m, err := newMiddleware(cfg)
	if err != nil {
		return nil, err
	}
	if _, ok := cfg.Store.(dedup.TxStore[Tx]); !ok {
		return nil, fmt.Errorf(
			"httpidem: %T has no transactions of the type %v: use New, or a store in the "+
				"database of the effects", cfg.Store, reflect.TypeFor[Tx](),
		)
	}
	if cfg.FailOpen || cfg.Rerun || cfg.StreamOnFlush {
		return nil, errors.New(
			"httpidem: FailOpen, Rerun and StreamOnFlush are options of New: a transaction needs " +
				"its store, leaves no outcome unknown, and sends no answer before the commit",
		)
	}
	m.tx = true
	m.enter = func(w http.ResponseWriter, q *request, next http.Handler) { inTx[Tx](w, q, next) }
	if l, ok := cfg.Store.(dedup.TxLooker); ok {
		m.look = l.LookTx
	}
	return m, nil
}

var (
	errForgotten = errors.New("answer is not stored: rolled back")
	errBuffer    = errors.New("httpidem: answer in a transaction is larger than Config.MaxBuffer")
)

// txRun is one run of a handler in a transaction; the database may repeat the transaction.
type txRun struct {
	q   *request
	rec *recorder
	ran bool
}

func inTx[Tx any](w http.ResponseWriter, q *request, next http.Handler) {
	cfg := &q.m.cfg
	t := &txRun{q: q}
	returned := false
	defer func() {
		// A panic of the handler, which continues after this function, or the end of the goroutine:
		// rolled back.
		if !returned {
			q.observe(Panicked, 0, nil)
		}
	}()
	a, err := dedup.EnterTx(q.r.Context(), q.m.guard, q.call, cfg.Timeout,
		func(tx Tx) (dedup.Result, error) {
			t.rec = newRecorder(w, q.r, cfg.MaxBuffer, false,
				func(*answer) error { return errBuffer })
			return t.run(next, tx)
		})
	returned = true
	if err == nil || errors.Is(err, errForgotten) || errors.Is(err, dedup.ErrSealed) {
		q.storeUp()
	}
	switch {
	case errors.Is(err, dedup.ErrSealed):
		q.sealed(w, err)
	case errors.Is(err, errForgotten):
		t.rec.send()
		q.observe(Forgotten, t.rec.status(), nil)
	case err != nil && !t.ran && q.r.Context().Err() != nil:
		q.notRun(w, err)
	case errors.Is(err, dedup.ErrUnavailable):
		q.unavailable(w, err)
	case err != nil:
		cfg.Logger.ErrorContext(q.r.Context(), "transaction of a request was rolled back",
			"idempotency_key", q.state.header, "error", safetext.Line(err))
		q.problem(http.StatusInternalServerError, "rolled_back",
			"The request failed and was rolled back.").write(w)
		q.observe(Unavailable, http.StatusInternalServerError, err)
	case a.Verdict == dedup.Fresh:
		t.rec.send()
		q.observe(Executed, t.rec.status(), nil)
	default:
		q.reply(w, a)
	}
}

func (t *txRun) run(next http.Handler, tx any) (dedup.Result, error) {
	q, cfg := t.q, &t.q.m.cfg
	ctx := context.WithoutCancel(q.r.Context())
	undo, err := savepoint(ctx, tx) // takes no time of the handler's
	if err != nil {
		return dedup.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	t.ran, q.ran = true, time.Now()
	q.state.tx = tx
	q.state.notApplied.Store(false)
	q.rewind()
	// a copy of its own: a repeated run must not see changes of an earlier one
	r := q.r.Clone(ctx)
	defer removeFiles(r, r.MultipartForm)
	next.ServeHTTP(t.rec, r)
	q.state.tx = nil
	a, _ := t.rec.finish()
	// After a lost connection the handler can only answer 500. The client should retry, since no
	// effect has happened.
	if c, ok := tx.(dedup.TxChecker); ok {
		if err := c.CheckTx(); errors.Is(err, dedup.ErrUnavailable) {
			return dedup.Result{}, err
		}
	}
	if t.rec.failed != nil {
		return dedup.Result{}, errBuffer
	}
	q.checkCORS(t.rec)
	switch q.resultPolicy(a.status, true) {
	case Forget:
		return dedup.Result{}, errForgotten
	case KeepAnswer:
		// The handler may have used up its own time.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), savepointTime)
		defer cancel()
		if err := undo(end); err != nil {
			return dedup.Result{}, err
		}
	default: // the store refuses to commit an aborted transaction
	}
	return a.result(q.m.keeps, cfg.MaxResponse), nil
}

// savepointTime is the time that the database may take to set a savepoint, or to return to it.
const savepointTime = 10 * time.Second

// savepoint sets a savepoint and returns the function that rolls back to it, for an answer without
// effects.
func savepoint(ctx context.Context, tx any) (undo func(context.Context) error, err error) {
	s, ok := tx.(dedup.Savepointer)
	if !ok {
		return func(context.Context) error {
			return fmt.Errorf(
				"httpidem: %T has no savepoints (dedup.Savepointer): an answer cannot be stored "+
					"without its effects", tx,
			)
		}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, savepointTime)
	defer cancel()
	return s.Savepoint(ctx)
}
