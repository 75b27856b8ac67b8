package pgstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// commit writes the completions that differ from a plain "done", and commits.
func (r *txRun) commit(done []dedup.Completion) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), endTimeout)
	defer cancel()
	keys, ends := newHeldKeys(r, len(done)), newEndRows(len(done))
	var dead deadOrigins
	buried := newHeldKeys(r, 0)
	for i := range done {
		at, plain, err := r.checkCompletion(&done[i])
		if err != nil {
			return err
		}
		if plain {
			continue
		}
		keys.add(at)
		if err := ends.add(&done[i]); err != nil {
			return fmt.Errorf("pgstore: complete: %w", err)
		}
		if dead.add(i, &done[i]); len(dead.claims) > len(buried.texts.id)+len(buried.ids) {
			buried.add(at)
		}
	}
	err := r.finish(ctx, ends, keys, &dead, buried)
	if err != nil {
		return r.undone(err, r.db.failed(ctx, "complete", err))
	}
	err = withoutCancel(r.conn.Conn(), func() error { return r.tx.Commit(ctx) })
	if err == nil {
		return nil
	}
	switch code := sqlState(err); {
	case code == codeZero && r.conn.Conn().PgConn().TxStatus() == 'E':
		// the check before COMMIT has failed
		return fmt.Errorf("pgstore: %w, and began another", dedup.ErrTxEnded)
	case code == codeSerialization || code == codeDeadlock:
		if r.group() {
			return contended(err)
		}
		r.again = true
	}
	return commitError(err)
}

// finish writes completions: one round trip.
func (r *txRun) finish(ctx context.Context, ends *endRows, keys *heldKeys, dead *deadOrigins,
	buried *heldKeys) error {
	if len(ends.status) == 0 {
		return nil
	}
	var b pgx.Batch
	b.Queue(r.q.finishEvents, append(ends.args(), keys.args()...)...)
	if !dead.none() {
		if r.numbers != nil {
			// Numbers are made in this transaction: a separate one could take a second
			// connection. Only the rows of this transaction use the numbers, and no process
			// remembers them.
			b.Queue(r.q.newOrigins, dead.topic, dead.part)
		}
		b.Queue(r.q.originEvents, dead.args(buried.args())...)
	}
	return r.tx.SendBatch(ctx, &b).Close()
}

// checkCompletion returns the index of c's request and whether its row needs no change for c.
func (r *txRun) checkCompletion(c *dedup.Completion) (i int, plain bool, err error) {
	i, ok := slices.BinarySearchFunc(r.reqs, c.Key,
		func(q dedup.Request, k dedup.Key) int { return q.Key.Compare(k) })
	switch {
	case !ok || r.answers[i].Verdict != dedup.Fresh:
		return i, false, fmt.Errorf("pgstore: complete: key %q is not held by this transaction",
			c.Key)
	case c.Retention <= 0:
		return i, false, fmt.Errorf("pgstore: complete: key %q: retention must be positive", c.Key)
	}
	return i, c.Dead == "" && c.Retry == 0 && c.Result.IsZero() &&
		c.Retention <= r.reqs[i].Retention, nil
}
