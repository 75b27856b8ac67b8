package pgstore

import (
	"cmp"
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// RunTx implements [dedup.TxRunner]. fn gets a transaction like that of [Store.ClaimTx], READ
// COMMITTED and with the same guards, but without a claim. After a serialization failure or a
// deadlock, RunTx returns the error of fn and does not run fn again. If fn sends COMMIT and BEGIN
// as SQL and then fails, the error does not tell of the COMMIT. Begin and commit cost one round trip
// each.
func (s *Store) RunTx(ctx context.Context, limit time.Duration,
	fn func(tx pgx.Tx) error) (err error) {
	q, err := s.db.statements(ctx)
	if err != nil {
		return s.db.failed(ctx, "begin", err)
	}
	r := &txRun{ctx: ctx, db: s.db, q: q, limit: limit,
		fn: func(tx pgx.Tx) ([]dedup.Completion, error) { return nil, fn(tx) }}
	if r.conn, err = s.db.acquire(ctx); err != nil {
		return s.db.failed(ctx, "begin", err)
	}
	r.socket = socketOf(r.conn.Conn().PgConn().Conn())
	defer r.end() // also if fn panics
	name := r.conn.Conn().PgConn().ParameterStatus(nameParameter)
	if err := r.beginUnclaimed(); err != nil {
		return s.db.failed(ctx, "begin", err)
	}
	return r.handle(name)
}

// beginUnclaimed begins a transaction without a claim. The session's settings are restored at
// once. The limit stays, and the mark by which commit knows the transaction.
func (r *txRun) beginUnclaimed() error {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{BeginQuery: beginSQL, CommitQuery: commitSQL})
	r.queueSettings(&b, false)
	b.Queue(r.q.restore, true)
	ctx, cancel := context.WithTimeout(r.ctx, r.db.silence)
	defer cancel()
	results := r.conn.SendBatch(ctx, &b)
	r.tx = results.Tx()
	err := execs(3)(results)
	return cmp.Or(err, results.Close()) // Close repeats an error that execs has returned
}
