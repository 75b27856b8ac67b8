package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// A COMMIT waits for the synchronous standbys. At the end of the context of a COMMIT, the drivers
// ask the server to cancel the COMMIT. The server then shows the commit although no standby has it
// (P-18). So the context of a COMMIT does not end in a dialect with CommitStays. The caller stops
// waiting, and a goroutine has the connection until the server answers, or the connection ends.
// Store.Close waits for it.

// life is the context of a transaction of the store's own. It ends with the call, but not during
// the COMMIT.
type life struct {
	store  *Store
	call   context.Context //nolint:containedctx // of the call
	ctx    context.Context //nolint:containedctx // of the transaction
	cancel context.CancelFunc
	detach func() bool // false: the transaction has ended with the call
	begun  bool        // the transaction does not end with the call
}

func (s *Store) newLife(call context.Context) *life {
	l := &life{store: s, call: call}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(call))
	l.detach = context.AfterFunc(call, l.cancel)
	return l
}

// begin notes that the transaction has begun. If the dialect gives the session its settings back,
// the end of the call must not end the transaction before that. Its statements end with the call.
func (l *life) begin() error {
	if l.store.d.CommitStays {
		return nil
	}
	if l.begun = l.detach(); !l.begun {
		return l.call.Err()
	}
	return nil
}

// commit commits, and returns at the end of the call.
func (l *life) commit(tx *sql.Tx) error {
	if l.begun {
		if err := l.call.Err(); err != nil {
			return err
		}
		return tx.Commit()
	}
	if !l.detach() {
		return l.call.Err()
	}
	done := l.store.commits.run(tx, l.cancel)
	l.cancel = func() {}
	select {
	case err := <-done:
		return err
	case <-l.call.Done(): // the caller's Rollback has no effect
		return fmt.Errorf("the COMMIT goes on: %w", l.call.Err())
	}
}

// end ends the context. An error of the end of ctx becomes that of the end of the call.
func (l *life) end(err error) error {
	l.cancel()
	e := l.call.Err()
	if e != nil && errors.Is(err, context.Canceled) && !errors.Is(err, e) {
		return fmt.Errorf("%w (%w)", e, err)
	}
	return err
}

// errSlow means that a COMMIT has not been answered, and goes on.
var errSlow = fmt.Errorf("no answer in %s, and the COMMIT goes on", endTimeout)

// commitTx commits the lent transaction.
func (r *txRun) commitTx() error {
	if !r.s.d.CommitStays {
		timer := time.AfterFunc(endTimeout, r.l.kill)
		defer timer.Stop()
		return r.tx.Commit()
	}
	done := r.s.commits.run(r.tx, func() {})
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		r.late = done
		return errSlow
	}
}

// leave closes the connection once the COMMIT has ended.
func (r *txRun) leave(conn *sql.Conn) {
	r.s.commits.after(r.late, func() {
		r.l.cancel()
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close() // it is closed already
	})
}
