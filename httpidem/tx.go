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

// NewTx returns a middleware whose handlers share one transaction with the claim of their key and the answer that is kept: [TxFrom] is
// where they find it, as the type that Store hands out (pgx.Tx for pgstore). The answer leaves after the commit only (H-23).
//
//	m, err := httpidem.NewTx[pgx.Tx](cfg)
//
// A transaction that the database refuses, or that its handler left aborted, is rolled back and forgotten, and the client is
// answered 500 or 503: the same request, sent again, runs again.
func NewTx[Tx any](cfg Config) (*Middleware, error) {
	m, err := newMiddleware(cfg)
	if err != nil {
		return nil, err
	}
	if _, ok := cfg.Store.(dedup.TxStore[Tx]); !ok {
		return nil, fmt.Errorf("httpidem: %T has no transactions of the type %v: use New, or a store of the database that the effects are in", cfg.Store, reflect.TypeFor[Tx]())
	}
	if cfg.FailOpen || cfg.Rerun || cfg.StreamOnFlush {
		return nil, errors.New("httpidem: FailOpen, Rerun and StreamOnFlush are for claims: in a transaction nothing runs without its store, no outcome is unknown, and nothing leaves before the commit")
	}
	m.tx = true
	m.enter = func(w http.ResponseWriter, q *request, next http.Handler) { inTx[Tx](w, q, next) }
	if l, ok := cfg.Store.(dedup.TxLooker); ok {
		m.look = l.LookTx
	}
	return m, nil
}

var (
	errForgotten = errors.New("answer is not kept: rolled back")
	errBuffer    = errors.New("httpidem: answer in a transaction is larger than Config.MaxBuffer")
)

// txRun is one run of a handler in a transaction; the transaction may be run more than once.
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
		if !returned { // a panic of the handler, which goes on from here, or the goroutine ends: rolled back
			q.observe(Panicked, 0, nil)
		}
	}()
	a, err := dedup.EnterTx(q.r.Context(), q.m.guard, q.call, cfg.Timeout, func(tx Tx) (dedup.Result, error) {
		t.rec = newRecorder(w, q.r, cfg.MaxBuffer, false, func(*answer) error { return errBuffer })
		return t.run(next, tx)
	})
	returned = true
	if err == nil || errors.Is(err, errForgotten) {
		q.storeUp()
	}
	switch {
	case errors.Is(err, errForgotten):
		t.rec.send()
		q.observe(Forgotten, t.rec.status(), nil)
	case err != nil && !t.ran && q.r.Context().Err() != nil:
		q.notRun(w, err)
	case errors.Is(err, dedup.ErrUnavailable):
		q.unavailable(w, err)
	case err != nil:
		cfg.Logger.ErrorContext(q.r.Context(), "transaction of a request was rolled back", "idempotency_key", q.state.header, "error", safetext.Line(err))
		q.problem(http.StatusInternalServerError, "rolled_back", "The request failed and was rolled back.").write(w)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.r.Context()), cfg.Timeout)
	defer cancel()
	undo, err := savepoint(ctx, tx)
	if err != nil {
		return dedup.Result{}, err
	}
	t.ran, q.ran = true, time.Now()
	q.state.tx = tx
	q.state.notApplied.Store(false)
	q.rewind()
	next.ServeHTTP(t.rec, q.r.Clone(ctx)) // of its own: what a run that is rolled back made of it is rolled back too
	q.state.tx = nil
	a, _ := t.rec.finish()
	// A handler that lost its connection can answer no better than 500; the client is to come again, as nothing has happened.
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
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), savepointTime) // the handler may have used up its own
		defer cancel()
		if err := undo(end); err != nil {
			return dedup.Result{}, err
		}
	default: // the store refuses to commit what the handler left aborted
	}
	return a.result(q.m.keeps, cfg.MaxResponse), nil
}

// savepointTime is how long the database may take to set a savepoint, or to go back to it.
const savepointTime = 10 * time.Second

// savepoint is where an answer without effects goes back to.
func savepoint(ctx context.Context, tx any) (undo func(context.Context) error, err error) {
	s, ok := tx.(dedup.Savepointer)
	if !ok {
		return func(context.Context) error {
			return fmt.Errorf("httpidem: %T has no savepoints (dedup.Savepointer): an answer cannot be kept without its effects", tx)
		}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, savepointTime)
	defer cancel()
	return s.Savepoint(ctx)
}
