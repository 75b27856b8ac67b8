package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
)

var (
	_ dedup.TxStore[*sql.Tx]  = (*Store)(nil)
	_ dedup.TxRunner[*sql.Tx] = (*Store)(nil)
	_ dedup.TxLooker          = (*Store)(nil)
	_ dedup.TxLimiter         = (*Store)(nil)
)

// ClaimTx implements [dedup.TxStore]. Commit and Rollback of the lent transaction return
// [ErrTxOwned] and do not reach the database. The package database/sql then takes the transaction
// for ended, so all later statements fail with [sql.ErrTxDone]. ClaimTx rolls back, and its error
// matches [dedup.ErrTxEnded]. COMMIT and ROLLBACK by SQL are found before the commit.
//
// A statement that was prepared on another [sql.DB] cannot be used in the lent transaction: prepare
// it there. If fn panics or ends its goroutine, ClaimTx closes the connection, and the panic goes
// on. A Busy answer has no Wait, because the store does not know when the other transaction ends.
//
// If a group loses its connection, or its handler is abandoned, ClaimTx looks for a COMMIT as SQL
// with another connection. ClaimTx waits for the end of the transaction, for 5 s at most. If that
// fails, the error says that a COMMIT as SQL is not ruled out. It matches [dedup.ErrClaimsInDoubt] if
// events have not run, and [dedup.ErrUnavailable] if the database does not answer.
func (s *Store) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request,
	answers []dedup.Answer, fn func(tx *sql.Tx) ([]dedup.Completion, error)) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return s.wrong("claim", err)
	}
	if len(reqs) == 0 {
		return nil
	}
	for try := 1; ; try++ {
		r := &txRun{s: s, limit: limit, reqs: reqs, answers: answers, fn: fn}
		err := r.run(ctx)
		if err != nil {
			clear(answers)
		}
		if !r.again || try == attempts || pause(ctx, try) != nil {
			return err
		}
		clear(answers)
	}
}

// RunTx implements [dedup.TxRunner]. fn gets a transaction like that of [Store.ClaimTx], but
// without a claim. RunTx does not run fn again.
func (s *Store) RunTx(ctx context.Context, limit time.Duration, fn func(tx *sql.Tx) error) error {
	r := &txRun{s: s, limit: limit,
		fn: func(tx *sql.Tx) ([]dedup.Completion, error) { return nil, fn(tx) }}
	return r.run(ctx)
}

// MaxTx implements [dedup.TxLimiter]. A quarter of the pool's connections, but at least one, stays
// free for claims and look-ups. A database with one writer serves one transaction at a time.
func (s *Store) MaxTx() int {
	if s.d.OneWriter {
		return 1
	}
	n := s.db.Stats().MaxOpenConnections
	if n == 0 {
		return 0
	}
	return max(1, n-max(1, n/4))
}

func (s *Store) contended(err error) error {
	return fmt.Errorf("%s: %w: %w", s.d.Name, dedup.ErrContended, err)
}
