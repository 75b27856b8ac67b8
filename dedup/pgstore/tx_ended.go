package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// takeBack undoes what a handler made durable that ended the transaction by COMMIT: the claims of the events that had
// not run yet, which would else pass for handled (rule 12). Each of them waits for its copy again. The rows need no
// right to delete, and one that existed before keeps its history.
//
// They are known by the transaction that wrote them, so that a row which somebody else has claimed meanwhile stays, and
// there is nothing to do after ROLLBACK.
func (r *txRun) takeBack(ended *dedup.TxEndedError, err error) error {
	r.end() // its connection may be the only one, and its next transaction must not hold the rows
	r.conn = session{}
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
	failed := r.db.ownTx(ctx, "take back claims", func(q *statements, b *pgx.Batch) {
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

// unwritten says what goes with a transaction that its handler ended. Effects that came before may be durable by then, or not, and
// nobody knows which of what was kept belongs to them (P-13).
func (r *txRun) unwritten(err error) error {
	if len(r.lent.works) > 0 && errors.Is(err, dedup.ErrTxEnded) {
		return fmt.Errorf("%w: what was kept for its end is not written", err)
	}
	return err
}
