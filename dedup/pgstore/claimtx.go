package pgstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// ClaimTx implements [dedup.TxStore]. fn gets a transaction of the level READ COMMITTED:
//
//   - Commit and Rollback return [ErrTxOwned].
//   - Begin sets a savepoint.
//   - Conn returns the connection itself, past these guards.
//   - After fn has returned, the transaction returns [pgx.ErrTxClosed].
//
// If fn panics or ends its goroutine, ClaimTx rolls the transaction back, and the panic goes on.
//
// A request with NoWait takes an advisory lock in the same round trip. The lock is on a number made
// of the schema and the key. If another transaction holds the lock, the answer is that of the
// committed row, or Busy, and the connection is free again. A transaction may hold the key without
// the lock: one that waits for others, or one of [Store.Once]. ClaimTx waits 20 ms for such a
// transaction. Two keys with the same 64-bit number cause a needless Busy.
//
// If a group fails and its connection is lost, or its handler is abandoned, ClaimTx asks with
// another connection how the transaction has ended, for 10 s at most. Without an answer the error
// says that a COMMIT as SQL is not ruled out. It matches [dedup.ErrClaimsInDoubt] if events have not
// run. It matches [dedup.ErrUnavailable] unless the server has answered that it still executes a
// statement of a handler that is abandoned, or that has called Commit or Rollback.
//
// A limit of zero or less leaves idle_in_transaction_session_timeout as the session has it. A Busy
// answer has no Wait, because the store does not know when the other transaction ends.
func (s *Store) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request,
	answers []dedup.Answer, fn func(tx pgx.Tx) ([]dedup.Completion, error)) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return fmt.Errorf("pgstore: claim: %w", err)
	}
	if len(reqs) == 0 {
		return nil
	}
	q, err := s.db.statements(ctx)
	if err != nil {
		return s.db.failed(ctx, "claim", err)
	}
	numbers, err := s.dict.placesOf(ctx, reqs)
	if err != nil {
		clear(answers)
		return err
	}
	for try := 1; ; try++ {
		r := &txRun{ctx: ctx, db: s.db, known: &s.events, q: q, limit: limit,
			reqs: reqs, numbers: numbers, answers: answers, open: reqs, fn: fn}
		err := r.run()
		if err != nil {
			clear(answers)
		}
		if !r.again || try == attempts || pause(ctx, try) != nil {
			return err
		}
		clear(answers)
	}
}

func (r *txRun) run() (err error) {
	if r.group() && r.known.most() {
		if err := r.look(); err != nil || len(r.open) == 0 {
			return err
		}
	}
	if r.conn, err = r.db.acquire(r.ctx); err != nil {
		return r.db.failed(r.ctx, "claim", err)
	}
	dedup.ClaimBegins(r.ctx)
	r.socket = socketOf(r.conn.Conn().PgConn().Conn())
	defer r.end() // also if fn panics
	name := r.conn.Conn().PgConn().ParameterStatus(nameParameter)
	if err := r.claim(); err != nil {
		return r.claimFailed(err)
	}
	r.known.learn(r.answers)
	if !slices.ContainsFunc(r.answers,
		func(a dedup.Answer) bool { return a.Verdict == dedup.Fresh }) {
		return nil
	}
	return r.handle(name)
}
