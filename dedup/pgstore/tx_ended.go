package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// takeBack repairs the claims of events that have not run, after a handler has ended the
// transaction by COMMIT. Their rows would count as handled (rule 12). takeBack makes each of
// these rows wait for a copy. No right to delete is needed, and a row that existed before keeps
// the history.
//
// The number of the transaction identifies the rows. A row that another worker has claimed
// meanwhile stays as it is. After a ROLLBACK there are no such rows.
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
		return fmt.Errorf("%w; events that never ran may count as handled: %w (%w)", err, failed,
			dedup.ErrUnavailable)
	}
	return err
}

// unwritten reports that kept work is lost with a transaction that the handler has ended.
// Earlier effects may be committed or not, and the store cannot relate the kept work to these
// effects (P-13).
func (r *txRun) unwritten(err error) error {
	if len(r.lent.works) > 0 && errors.Is(err, dedup.ErrTxEnded) {
		return fmt.Errorf("%w: work kept for the commit is not written", err)
	}
	return err
}
