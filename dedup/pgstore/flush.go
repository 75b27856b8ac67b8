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
	// flushTime is how long the work before a commit may take in all, whatever it waits for.
	flushTime = 10 * time.Second

	// flushSettings are those of the work before a commit, also in a group: its 20 ms are there because rows are locked in the order of
	// events, while this work locks in an order of its own, and last, so that whoever is waited for is about to commit. Who gets no
	// lock for lockWait waits for somebody who hangs. The whole must end before flushTime, which would cost the connection.
	flushSettings = "SELECT set_config('lock_timeout', '2000', true), set_config('statement_timeout', '8000', true)"
)

// flush lets what handlers have kept be done (rule 22).
func (r *txRun) flush() error {
	if len(r.lent.works) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, min(flushTime, r.db.silence))
	defer cancel()
	tx := &flushTx{handlerTx: handlerTx{Tx: r.tx, marked: r.lent.marked, outside: r.lent.outside, points: r.lent.points}}
	defer tx.close()
	for _, k := range r.lent.works {
		if err := flushOne(ctx, k.work, tx); err != nil {
			return r.flushFailed(ctx, fmt.Errorf("pgstore: before commit: %w", err))
		}
	}
	if err := r.handlerLeft(); err != nil {
		return r.flushFailed(ctx, fmt.Errorf("pgstore: before commit: %w", err))
	}
	return nil
}

// flushOne makes an error of a panic: the goroutine here is the caller's, and a handler's event must not end his process (K-23).
func flushOne(ctx context.Context, w dedup.TxWork, tx pgx.Tx) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return w.Flush(ctx, tx)
}

// errBusy says that the transaction of one request has met a lock of somebody who does not go on: it has been answered Busy.
var errBusy = errors.New("pgstore: lock not available before commit")

// flushFailed says what an error of the work before the commit means. No handler has failed: who waits for others is told so, and
// the rest is as in [txRun.handlerFailed].
func (r *txRun) flushFailed(ctx context.Context, err error) error {
	c, code := r.conn.Conn(), sqlState(err)
	aborted := !c.IsClosed() && c.PgConn().TxStatus() == 'E'
	switch {
	case errors.Is(r.ctx.Err(), context.Canceled): // nobody wants it any longer
		return err
	case c.IsClosed(), !aborted && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	case !aborted: // of another database, or of none
		return err
	}
	switch code {
	case codeNoLock, codeDeadlock, codeSerialization:
		r.again = !r.group() && code != codeNoLock
		return r.lockRefused(err)
	case codeFull, codeCanceled: // too much for one transaction: less may be possible
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

// lockRefused is what is said of a lock that somebody else has. A single request is answered Busy, as if he had its key (rule 10).
func (r *txRun) lockRefused(err error) error {
	if len(r.reqs) != 1 {
		return blockedError{err}
	}
	r.answers[0] = dedup.Answer{Verdict: dedup.Busy}
	return errBusy
}

// blockedError is what an error of a lock means, whatever the work made of it: not that the server cannot be used.
type blockedError struct{ err error }

func (e blockedError) Error() string {
	return fmt.Sprintf("pgstore: %v: %v", dedup.ErrContended, e.err)
}

func (e blockedError) Unwrap() []error {
	var pg *pgconn.PgError
	_ = errors.As(e.err, &pg) // it has a code
	return []error{dedup.ErrContended, pg}
}

// flushTx is the transaction as the work before its commit sees it: as handlers do, but that nothing can be kept any longer, and
// that it has its own time-outs. They travel with the first batch; before anything else they cost a round trip.
type flushTx struct {
	handlerTx
	set bool
}

// KeepTx refuses: the order in which works are done is settled.
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
	_, _ = results.Exec() // an error of it is one of what follows
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

func (t *flushTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
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
