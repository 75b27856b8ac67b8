package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

const (
	// acquireTimeout is how long a call waits for a connection of the pool.
	acquireTimeout = 10 * time.Second
	// idleSlack is added to the handler's limit, for the server's time-out of idle sessions.
	idleSlack = 5 * time.Second
)

// txRun is one transaction of ClaimTx or RunTx.
type txRun struct {
	s       *Store
	limit   time.Duration
	reqs    []dedup.Request
	answers []dedup.Answer
	fn      func(*sql.Tx) ([]dedup.Completion, error)

	l     *loan
	db    *sql.DB // of the loan
	tx    *sql.Tx
	w     *work
	check func(context.Context) error
	held  map[int]*decision.Record // the records that this transaction has written
	again bool                     // a repeat may succeed
	spoil bool                     // the connection must be closed
	blind bool                     // the connection cannot tell whether a COMMIT as SQL came before
	late  <-chan error             // not nil: the end of a COMMIT that goes on
}

func (r *txRun) group() bool { return len(r.reqs) > 1 }

func (r *txRun) wait() time.Duration {
	if r.group() || len(r.reqs) == 1 && r.reqs[0].NoWait {
		return groupWait
	}
	return lockWait
}

func (r *txRun) run(ctx context.Context) (err error) {
	conn, err := r.acquire(ctx)
	if err != nil {
		return r.claimFailed(ctx, err)
	}
	dedup.ClaimBegins(ctx)
	raw := conn.Raw(func(c any) error {
		inner, ok := c.(driver.Conn)
		if !ok {
			err = errors.ErrUnsupported
			return nil
		}
		if err = r.lent(ctx, inner); r.spoil && r.late == nil {
			return driver.ErrBadConn // the pool closes the connection
		}
		return nil
	})
	if r.late != nil {
		r.leave(conn)
		return err
	}
	_ = conn.Close() // it is back already if it was spoilt
	if raw != nil && !errors.Is(raw, driver.ErrBadConn) {
		return r.s.failed(ctx, "claim", raw)
	}
	if r.blind || errors.Is(err, dedup.ErrAbandoned) {
		return r.lookBack(ctx, err)
	}
	return r.takeBack(ctx, err)
}

// acquire waits for a connection for a bounded time. If the database has one writer, the wait is
// that for a lock.
func (r *txRun) acquire(ctx context.Context) (*sql.Conn, error) {
	limit := acquireTimeout
	if r.s.d.OneWriter {
		limit = r.wait()
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := r.s.db.Conn(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil && r.s.d.OneWriter {
		err = errWriter
	}
	return conn, err
}

// errWriter means that another transaction of this process writes.
var errWriter = errors.New("another transaction writes")

func (r *txRun) lent(ctx context.Context, inner driver.Conn) (err error) {
	r.l = newLoan(ctx, inner, r.s.d)
	r.db = sql.OpenDB(r.l)
	whole := false
	defer func() {
		if !whole { // a panic
			r.l.kill()
		}
		if r.tx != nil {
			_ = r.rollback() // waits for running statements; no effect after the end
		}
		if r.late == nil {
			r.l.cancel()
		}
		_ = r.db.Close()
	}()
	if err := r.begin(ctx); err != nil {
		r.spoil = true // inside a transaction, maybe
		whole = true
		return r.claimFailed(ctx, err)
	}
	if len(r.reqs) > 0 && len(r.held) == 0 {
		r.spoil = r.rollback() != nil
		whole = true
		return nil
	}
	err = r.handle(ctx)
	whole = true
	return err
}

// begin begins the transaction and claims.
func (r *txRun) begin(ctx context.Context) (err error) {
	timer := time.AfterFunc(silence, r.l.kill)
	defer timer.Stop()
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	d := r.s.d
	// Not with the context of the loan: its end would roll back beside this goroutine. The Rollback
	// of this goroutine must wait for running statements.
	r.tx, err = r.db.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: d.Isolation})
	if err != nil {
		return err
	}
	r.w = &work{q: r.tx, d: d, scopes: scopesOf(r.reqs)}
	idle := time.Duration(0)
	if r.limit > 0 {
		idle = r.limit + idleSlack
	}
	restore, err := d.Begin(ctx, r.tx, r.wait(), idle)
	if err != nil {
		return err
	}
	r.held, err = r.w.claim(ctx, eventsTable, r.reqs, r.answers, r.grant)
	if err == nil && restore != nil {
		err = restore(ctx)
	}
	if err == nil {
		r.check, err = d.Mark(ctx, r.tx)
	}
	return err
}

// grant writes the row as done at once: before the commit no other transaction sees it.
func (r *txRun) grant(rec *decision.Record, q *dedup.Request) dedup.Answer {
	a := rec.Claim(dedup.Token{}, 0, q, r.w.now)
	if a.Verdict.Held() {
		rec.State, rec.LastCall = decision.Done, decision.Completed
		rec.Keep(q.Retention, r.w.now)
	}
	return a
}

// claimFailed explains an error before the handler.
func (r *txRun) claimFailed(ctx context.Context, err error) error {
	class := r.s.d.Classify(err)
	switch {
	case errors.Is(err, errAgain), class == Again, class == Taken:
		r.again = true
		if r.group() {
			return r.s.contended(err)
		}
	case errors.Is(err, errWriter), class == Locked:
		if r.group() || len(r.reqs) == 0 {
			return r.s.contended(err)
		}
		clear(r.answers)
		r.answers[0] = dedup.Answer{Verdict: dedup.Busy}
		return nil
	}
	return r.s.failed(ctx, "claim", err)
}

// handle runs fn and ends the transaction.
func (r *txRun) handle(ctx context.Context) error {
	done, err := r.fn(r.tx)
	if errors.Is(err, dedup.ErrAbandoned) {
		r.spoil = true
		r.l.kill()
		return err
	}
	if err != nil {
		return r.handlerFailed(ctx, err)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := r.left(end); err != nil {
		r.spoil = true
		return err
	}
	if err := r.finish(end, done); err != nil {
		r.spoil = r.rollback() != nil
		if _, ok := errors.AsType[refusal](err); ok {
			return err
		}
		return r.s.failed(ctx, "complete", err)
	}
	return r.commit()
}

// left checks the transaction after fn has returned.
func (r *txRun) left(ctx context.Context) error {
	if r.l.ended.Load() {
		return fmt.Errorf("%s: %w", r.s.d.Name, ErrTxOwned)
	}
	state, err := r.verify(ctx)
	switch {
	case err == nil:
		return nil
	case state == Ended:
		return fmt.Errorf("%s: %w: %w", r.s.d.Name, dedup.ErrTxEnded, err)
	case state == Aborted:
		return fmt.Errorf("%s: %w: %w", r.s.d.Name, dedup.ErrTxAborted, err)
	case errors.Is(err, errRowsOpen):
		return r.s.wrong("check", err)
	}
	return r.s.failed(context.WithoutCancel(ctx), "check", err)
}

// handlerFailed explains an error of fn, which stays in the chain. After a COMMIT as SQL the
// transaction is not repeated.
func (r *txRun) handlerFailed(ctx context.Context, err error) error {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	class := r.s.d.Classify(err)
	state, broken := r.verify(end)
	if broken == nil {
		r.spoil = r.rollback() != nil
	}
	if state == Ended {
		return decision.EndedBySQL(r.s.d.Name, err)
	}
	r.blind = broken != nil && state != Aborted
	canceled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	unknown := broken != nil && state == Unknown
	switch {
	case r.group() && (class == Again || class == Locked):
		return r.s.contended(err)
	case class == Again && broken != nil && !unknown:
		r.again = len(r.reqs) > 0
	case errors.Is(broken, errRowsOpen):
		return fmt.Errorf("%w (%s: %w)", err, r.s.d.Name, broken)
	case class == Down, unknown && !canceled:
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	return err
}

// finish writes the completions that differ from a plain "done".
func (r *txRun) finish(ctx context.Context, done []dedup.Completion) error {
	var changed []*decision.Record
	for i := range done {
		c := &done[i]
		at := r.find(c.Key)
		switch {
		case at < 0:
			return refusal{fmt.Errorf("%s: complete: key %q is not held by this transaction",
				r.s.d.Name, c.Key)}
		case c.Retention <= 0:
			return refusal{fmt.Errorf("%s: complete: key %q: %w", r.s.d.Name, c.Key,
				errRetention)}
		}
		if c.Dead == "" && c.Retry == 0 && c.Result.IsZero() &&
			c.Retention <= r.reqs[at].Retention {
			continue
		}
		rec := r.held[at]
		old := rec.Expires
		rec.End(c, r.w.now)
		rec.Expires = later(rec.Expires, old)
		changed = append(changed, rec)
	}
	return eventsTable.replace(ctx, r.tx, r.s.d, changed)
}

// find returns the index of the held request of key, or -1.
func (r *txRun) find(key dedup.Key) int {
	for i := range r.held {
		if r.reqs[i].Key == key {
			return i
		}
	}
	return -1
}

func (r *txRun) rollback() error {
	timer := time.AfterFunc(endTimeout, r.l.kill)
	defer timer.Stop()
	r.l.owned.Store(true)
	return r.tx.Rollback()
}

// commit commits. An error of the server means a rollback; after any other error the transaction
// may have been committed (P-11).
func (r *txRun) commit() error {
	r.l.owned.Store(true)
	err := r.commitTx()
	if err == nil {
		return nil
	}
	r.spoil = true
	name := r.s.d.Name
	switch r.s.d.Classify(err) {
	case Again, Locked:
		if r.group() {
			return r.s.contended(err)
		}
		r.again = len(r.reqs) > 0
		return fmt.Errorf("%s: commit: %w", name, err)
	case Refused, Aborted, Taken:
		return fmt.Errorf("%s: commit: %w", name, err)
	case Unknown, Down, Stopped, Setup, Ended:
	}
	return fmt.Errorf("%s: commit: %w: %w: %w", name, dedup.ErrUnavailable,
		dedup.ErrUnknownCommit, err)
}
