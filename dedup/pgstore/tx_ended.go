package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
	"github.com/jackc/pgx/v5"
)

// askTime bounds the question to the connection of the transaction. Time for another one remains.
const askTime = 3 * time.Second

// lastAsk is the time that remains for the answer to the last question about a transaction.
const lastAsk = time.Second

// errUndecided means that the server does not know yet what becomes of a transaction.
var errUndecided = errors.New("the transaction has not ended, and the server may still execute a " +
	"statement of it")

// undone ends a transaction that is not committed because of err. If the handler has ended the
// transaction by SQL, the error matches [dedup.ErrTxEnded], the claims of events that have not run
// are taken back, and the transaction is not repeated. Otherwise the error is explained.
func (r *txRun) undone(err, explained error) error {
	found, failed := r.endedBySQL()
	switch {
	case failed != nil:
		return outOfReach(explained, failed)
	case !found:
		return explained
	}
	r.again = false // the handler would not run again, because its event counts as handled
	return r.takeBack(decision.EndedBySQL("pgstore", err))
}

// outOfReach adds to err that a server which cannot be asked has not ruled a COMMIT out.
func outOfReach(err, failed error) error {
	return fmt.Errorf("%w (%w)", decision.NotRuledOut(err, failed), dedup.ErrUnavailable)
}

// endedBySQL reports whether the handler has ended the transaction by SQL. A failure in a second
// transaction, or a lost connection, can hide a COMMIT. So endedBySQL rolls back, and the server
// tells in the same round trip what became of the transaction. After the loss of the connection,
// another one asks for a group. A single event is claimed again, and the answer tells.
// If the server does not know by the end of endTimeout, endedBySQL returns an error.
func (r *txRun) endedBySQL() (bool, error) {
	if errors.Is(r.lent.state(), dedup.ErrTxEnded) {
		return true, nil
	}
	if r.xid == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), endTimeout)
	defer cancel()
	status := r.status()
	if c := r.conn.Conn(); !c.IsClosed() {
		first, cancel := context.WithTimeout(ctx, min(askTime, r.db.silence))
		defer cancel()
		if found, err := committedBefore(first, c, "rollback; "+status); err == nil {
			return found, nil
		}
		_ = c.Close(first) // closed in any case, and the server rolls back
	}
	if !r.group() {
		return false, nil
	}
	r.release()
	return r.db.committedAtLast(ctx, status)
}

// status is a query for the status of the transaction.
func (r *txRun) status() string { return "select pg_xact_status('" + r.xid + "')" }

// committedAtLast asks with other connections until the transaction has ended, or until shortly
// before endTimeout. A COMMIT may still be on its way to the server, or wait there for a disk or a
// standby. A server that restarts refuses connections for a while, and ends those of the pool. The
// error matches errUndecided if the last answer did not tell.
func (d *database) committedAtLast(ctx context.Context, status string) (found bool, err error) {
	const verb = "look for a COMMIT"
	err = untilAnswered(ctx, func(ctx context.Context) error {
		conn, err := d.acquire(ctx)
		if err != nil {
			return d.failed(ctx, verb, err)
		}
		defer conn.Release()
		found, err = committedBefore(ctx, conn.Conn(), status)
		if errors.Is(err, errUndecided) {
			return fmt.Errorf("pgstore: %s: %w", verb, err)
		}
		return d.failed(ctx, verb, err)
	})
	return found, err
}

// untilAnswered repeats a question until shortly before endTimeout, or until the server refuses the
// question. Each try has askTime, so that a connection without an answer leaves time for another.
func untilAnswered(ctx context.Context, ask func(context.Context) error) error {
	wait, cancel := context.WithTimeout(ctx, endTimeout-lastAsk)
	defer cancel()
	for try := 1; ; try++ {
		err := within(ctx, askTime, ask)
		if err == nil || refused(err) || pause(wait, try) != nil {
			return err
		}
	}
}

// within calls fn with a context that ends after limit at the latest.
func within(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx)
}

// refused reports whether err is an answer of the server that will not change.
func refused(err error) bool {
	code := sqlState(err)
	return code != "" && !infrastructure(code) && !lostRace(err) && code != codeCanceled
}

// committedBefore executes text, whose last statement returns the status of a transaction. Without
// arguments, all statements travel in one message.
func committedBefore(ctx context.Context, c *pgx.Conn, text string) (bool, error) {
	results, err := c.PgConn().Exec(ctx, text).ReadAll()
	if err != nil {
		return false, err
	}
	status := ""
	if rows := results[len(results)-1].Rows; len(rows) == 1 {
		status = string(rows[0][0])
	}
	return isCommitted(status)
}

// isCommitted reads the status of a transaction. Only two of its values are an answer.
func isCommitted(status string) (bool, error) {
	switch status {
	case "committed":
		return true, nil
	case "aborted":
		return false, nil
	}
	return false, fmt.Errorf("%w: status %q", errUndecided, status)
}

// takeBackLate is takeBack for a group whose COMMIT may still be on its way, because the handler is
// abandoned or the connection is lost. The rows cannot be seen before its end. A server that still
// executes a statement of the handler has answered, and does not count as unavailable.
func (r *txRun) takeBackLate(err error) error {
	if r.xid == "" || !decision.OfGroup(err) {
		return err
	}
	r.release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), endTimeout)
	defer cancel()
	switch found, failed := r.db.committedAtLast(ctx, r.status()); {
	case errors.Is(failed, errUndecided):
		return decision.NotRuledOut(err, failed)
	case failed != nil:
		return outOfReach(err, failed)
	case !found:
		return err
	}
	return r.takeBack(decision.EndedBySQL("pgstore", err))
}

// release ends the transaction before another one begins: its connection may be the only one, and
// it must not hold the rows.
func (r *txRun) release() {
	r.end()
	r.conn = session{}
}

// takeBack repairs the claims of events that have not run, after a handler has ended the
// transaction by COMMIT. Their rows would count as handled (rule 12). takeBack makes each of
// these rows wait for a copy. No right to delete is needed, and a row that existed before keeps
// the history.
//
// The number of the transaction identifies the rows. A row that another worker has claimed
// meanwhile stays as it is. After a ROLLBACK there are no such rows. The error of a single event
// names no such event.
func (r *txRun) takeBack(err error) error {
	ended, ok := errors.AsType[*dedup.TxEndedError](err)
	if !ok {
		return err
	}
	r.release()
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
	failed := untilAnswered(ctx, func(ctx context.Context) error {
		return r.db.ownTx(ctx, "take back claims", func(q *statements, b *pgx.Batch) {
			b.Queue(q.takeBack, append([]any{r.xid}, keys.args()...)...)
		}, func(results pgx.BatchResults) error {
			_, err := results.Exec()
			return err
		})
	})
	if failed != nil {
		return decision.NotTakenBack(err, failed)
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
