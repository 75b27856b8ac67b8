package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// flushTime bounds the work before a commit as a whole.
	flushTime = 10 * time.Second

	// flushSettings are the time-outs of the work before a commit, also in a group. A group waits
	// 20 ms for locks because handlers lock rows in the order of events. The work before a commit
	// has an order of its own and is the last step, so the holder of a lock is about to commit. A
	// holder that keeps a lock for longer than lockWait hangs. The work must end before flushTime,
	// which would cost the connection.
	flushSettings = "SELECT set_config('lock_timeout', '2000', true), " +
		"set_config('statement_timeout', '8000', true)"
)

// flush does the work that handlers have kept for the commit (rule 22).
func (r *txRun) flush() error {
	if len(r.lent.works) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, min(flushTime, r.db.silence))
	defer cancel()
	tx := &flushTx{handlerTx: handlerTx{Tx: r.tx, marked: r.lent.marked, outside: r.lent.outside,
		points: r.lent.points}}
	defer tx.close()
	for _, k := range r.lent.works {
		if err := flushOne(ctx, k.work, tx); err != nil {
			return r.flushUndone(ctx, fmt.Errorf("pgstore: before commit: %w", err))
		}
	}
	if err := r.handlerLeft(); err != nil {
		return r.flushUndone(ctx, fmt.Errorf("pgstore: before commit: %w", err))
	}
	return nil
}

// flushOne turns a panic into an error. This goroutine is the caller's, and the work of one event
// must not end the process (K-23).
func flushOne(ctx context.Context, w dedup.TxWork, tx pgx.Tx) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return w.Flush(ctx, tx)
}

// errBusy means that the transaction of one request has met a lock that does not come free. The
// request is answered Busy.
var errBusy = errors.New("pgstore: lock not available before commit")

// flushUndone ends a transaction whose work before the commit has failed. A handler may have
// committed by SQL and begun another transaction. Then the work failed in that one, and neither a
// repeat nor Busy would tell of the effects.
func (r *txRun) flushUndone(ctx context.Context, err error) error {
	return r.undone(err, r.flushFailed(ctx, err))
}

// flushFailed explains an error of the work before the commit. No handler has failed. A wait for
// another transaction shows as such. Other errors are handled as in [txRun.handlerFailed].
func (r *txRun) flushFailed(ctx context.Context, err error) error {
	c, code := r.conn.Conn(), sqlState(err)
	aborted := !c.IsClosed() && c.PgConn().TxStatus() == 'E'
	switch {
	case errors.Is(r.ctx.Err(), context.Canceled): // the caller has gone
		return err
	case c.IsClosed(), !aborted && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	case !aborted: // an error of another database, or of other code
		return err
	}
	switch code {
	case codeNoLock, codeDeadlock, codeSerialization:
		r.again = !r.group() && code != codeNoLock
		return r.lockRefused(err)
	case codeFull, codeCanceled: // too much for one transaction; a smaller one may pass
		if r.group() {
			return blockedError{err}
		}
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	if infrastructure(code) {
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	return err
}

// lockRefused explains a lock that another transaction holds. A single request is answered Busy,
// as if the other transaction had the key (rule 10).
func (r *txRun) lockRefused(err error) error {
	if len(r.reqs) != 1 {
		return blockedError{err}
	}
	r.answers[0] = dedup.Answer{Verdict: dedup.Busy}
	return errBusy
}

// blockedError is an error of a lock, however wrapped by the work. The server can be used.
type blockedError struct{ err error }

func (e blockedError) Error() string {
	return fmt.Sprintf("pgstore: %v: %v", dedup.ErrContended, e.err)
}

func (e blockedError) Unwrap() []error {
	var pg *pgconn.PgError
	_ = errors.As(e.err, &pg) // err has a code
	return []error{dedup.ErrContended, pg}
}

// flushTx is the transaction for the work before the commit. A flushTx is like the transaction
// of handlers, but with other time-outs, and no more work can be kept. The time-outs travel with
// the first batch. Before any other call the time-outs cost a round trip.
type flushTx struct {
	handlerTx
	set bool
}

// KeepTx fails, because the order of the works is final.
func (t *flushTx) KeepTx(any, func() dedup.TxWork) (dedup.TxWork, error) {
	return nil, fmt.Errorf("pgstore: %w: before commit", dedup.ErrTxEnded)
}

func (t *flushTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.set || t.closed.Load() {
		return t.handlerTx.SendBatch(ctx, b)
	}
	t.set = true
	var all pgx.Batch
	all.Queue(flushSettings)
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	results := t.handlerTx.SendBatch(ctx, &all)
	_, _ = results.Exec() // the error also fails a later query
	return results
}

func (t *flushTx) applySettings(ctx context.Context) error {
	if t.set || t.closed.Load() {
		return nil
	}
	t.set = true
	_, err := t.handlerTx.Exec(ctx, flushSettings)
	return err
}

func (t *flushTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.applySettings(ctx); err != nil {
		return nil, err
	}
	return t.handlerTx.Begin(ctx)
}

func (t *flushTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	rows pgx.CopyFromSource) (int64, error) {
	if err := t.applySettings(ctx); err != nil {
		return 0, err
	}
	return t.handlerTx.CopyFrom(ctx, table, columns, rows)
}

func (t *flushTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.applySettings(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.handlerTx.Exec(ctx, sql, args...)
}

func (t *flushTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.applySettings(ctx); err != nil {
		return closedRows{err}, err
	}
	return t.handlerTx.Query(ctx, sql, args...)
}

func (t *flushTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.applySettings(ctx); err != nil {
		return closedRows{err}
	}
	return t.handlerTx.QueryRow(ctx, sql, args...)
}
