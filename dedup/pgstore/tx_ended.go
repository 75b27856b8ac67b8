package pgstore

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// MaxTx implements [dedup.TxLimiter]: the connections of the pool less a quarter, but at least one, that is left for
// claims, probes, and what handlers read beside their transaction (rules 25 and 26). A pool of one serves one.
func (s *Store) MaxTx() int {
	if s.wrong != nil {
		return 0
	}
	conns := int(s.pool.Config().MaxConns)
	return max(1, conns-max(1, conns/4))
}

// takeBack undoes what a handler made durable that ended the transaction by COMMIT: the claims of the events that had
// not run yet, which would else pass for handled (rule 12). Each of them waits for its copy again. The rows need no
// right to delete, and one that existed before keeps its history.
//
// They are known by the transaction that wrote them, so that a row which somebody else has claimed meanwhile stays, and
// there is nothing to do after ROLLBACK.
func (r *txRun) takeBack(ended *dedup.TxEndedError, err error) error {
	r.end() // its connection may be the only one, and its next transaction must not hold the rows
	r.conn = nil
	keys, n := newHeldKeys(r, len(ended.Unrun)), 0
	for _, i := range ended.Unrun {
		if i < 0 || i >= len(r.reqs) {
			return fmt.Errorf("pgstore: event %d of %d did not run: %w", i, len(r.reqs), err)
		}
		if r.answers[i].Verdict == dedup.Fresh {
			keys.add(i)
			n++
		}
	}
	if n == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), endTimeout)
	defer cancel()
	failed := r.s.ownTx(ctx, "take back claims", func(q *statements, b *pgx.Batch) {
		b.Queue(q.takeBack, append([]any{r.xid}, keys.args()...)...)
	}, func(results pgx.BatchResults) error {
		_, err := results.Exec()
		return err
	})
	if failed != nil {
		return fmt.Errorf("%w; events that never ran may count as handled: %w (%w)", err, failed, dedup.ErrUnavailable)
	}
	return err
}
