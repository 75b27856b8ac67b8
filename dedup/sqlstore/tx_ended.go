package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// errRowsOpen means that a statement failed because the rows of another one were open.
var errRowsOpen = errors.New(
	"the handler left a result open: close its rows before the next statement, and at the end")

// errCommitted means that the rows of a transaction are there after its rollback.
var errCommitted = errors.New("the handler sent COMMIT as SQL")

// errNoTrace means that a transaction has ended and its rows are not there.
var errNoTrace = errors.New("the transaction is rolled back")

// verify checks the transaction after fn has returned. Without an error the transaction goes on.
// Otherwise the state is Ended, Aborted for a transaction that is rolled back, or another class of
// the error. It is Refused if open rows are the cause. After a COMMIT as SQL, a statement that
// failed, or Commit and Rollback of fn, can hide the COMMIT from the check. Then verify rolls back,
// and the rows of the transaction tell (rule 12). The state is Unknown if this connection cannot
// tell.
func (r *txRun) verify(ctx context.Context) (state Class, err error) {
	err = r.check(ctx)
	state = r.s.d.Classify(err)
	switch {
	case err == nil:
		return state, nil
	case r.l.ended.Load(): // neither Commit nor Rollback of fn has reached the database
		r.l.owned.Store(true)
		r.spoil = true
		_, lost := r.db.ExecContext(ctx, "ROLLBACK")
		switch class := r.s.d.Classify(lost); {
		case lost == nil, class == Refused: // SQLite refuses it after a COMMIT
		case class == Unknown && r.l.overlap.Load(): // the handler has broken it
			return Refused, errRowsOpen
		default:
			return Unknown, fmt.Errorf("%w: %w", err, lost)
		}
	case state == Aborted:
		r.spoil = r.rollback() != nil
	case state == Unknown && r.l.overlap.Load(): // the driver may have closed the connection
		r.spoil = true
		return Refused, errRowsOpen
	default:
		r.spoil = true
		return state, err
	}
	there, failed := r.committed(ctx, r.db)
	switch {
	case failed != nil:
		return Unknown, fmt.Errorf("%w: %w", err, failed)
	case there:
		r.spoil = true
		return Ended, errCommitted
	}
	return Aborted, err
}

const (
	// lookBackTime bounds the wait for the end of a transaction whose connection is lost. The engine
	// takes the store for unavailable if a call goes on for 10 s after the handler.
	lookBackTime = 5 * time.Second
	// lookTime bounds one look at the rows without a lock.
	lookTime = time.Second
)

// lookBack looks for the rows of a group with another connection, after the connection of the
// transaction is lost or its handler is abandoned. A COMMIT may still be on its way, and then the
// rows cannot be seen yet. The error tells if a COMMIT was found, or is not ruled out.
func (r *txRun) lookBack(ctx context.Context, err error) error {
	if !decision.OfGroup(err) {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	look := func(ctx context.Context) (bool, error) { return r.committed(ctx, r.s.reader) }
	switch there, failed := lookAndSettle(ctx, look, r.settled); {
	case errors.Is(failed, errUndecided): // the database has answered
		return decision.NotRuledOut(err, failed)
	case failed != nil:
		return fmt.Errorf("%w (%w)", decision.NotRuledOut(err, failed), dedup.ErrUnavailable)
	case !there:
		return err
	}
	return r.takeBack(ctx, decision.EndedBySQL(r.s.d.Name, err))
}

// errUndecided means that the database has answered, and that the transaction may still go on.
var errUndecided = errors.New("another transaction holds the rows, or the server still executes a " +
	"statement of the handler, or a row cannot be written")

// lookAndSettle finds out whether a transaction was committed. The function look reads the rows
// without a lock. The function settle waits for the end of the transaction. Both are repeated for
// at most lookBackTime, because a database that restarts refuses connections for a while.
//
// A worker with a copy may lock the rows for longer, so a row that look finds is the answer. A
// COMMIT may come between look and such a lock, so look comes again at the end. If look sees no row
// then, the error matches errUndecided.
func lookAndSettle(ctx context.Context, look, settle func(context.Context) (bool, error)) (
	bool, error) {
	sees := func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		return look(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, lookBackTime)
	defer cancel()
	for try := 1; ; try++ {
		if there, err := sees(); err == nil && there {
			return true, nil
		}
		there, err := settle(bounded)
		if err == nil {
			return there, nil
		}
		if pause(bounded, try) == nil {
			continue
		}
		switch there, failed := sees(); {
		case failed != nil:
			return false, err
		case there:
			return true, nil
		}
		return false, fmt.Errorf("%w: %s", errUndecided, err.Error())
	}
}

// settled reports whether a row of the transaction is there, after the end of the transaction. A
// row that the transaction has changed is locked until then, and so is the key of a new row. So
// settled locks the rows, inserts those that are not there, and rolls back.
func (r *txRun) settled(ctx context.Context) (there bool, err error) {
	err = r.s.ownTx(ctx, "look for a COMMIT", nil, func(ctx context.Context, w *work) error {
		found, err := w.read(ctx, eventsTable, r.heldKeys(), w.d.Lock)
		if err != nil {
			return err
		}
		if there = r.traced(found); there {
			return nil
		}
		var absent []*decision.Record
		for i := range r.reqs { // in the order of the keys
			if rec := r.held[i]; rec != nil && found[rec.Key] == nil {
				absent = append(absent, rec)
			}
		}
		if err := eventsTable.add(ctx, w.q, w.d, absent); err != nil {
			return err // errAgain if the transaction has committed meanwhile
		}
		return errNoTrace
	})
	if there || errors.Is(err, errNoTrace) {
		return there, nil
	}
	return false, err
}

// committed reports whether a row of the transaction is there, after the rollback. The query waits
// for no transaction.
func (r *txRun) committed(ctx context.Context, q Querier) (bool, error) {
	found, err := eventsTable.read(ctx, q, r.s.d, r.heldKeys(), "")
	return r.traced(found), err
}

func (r *txRun) heldKeys() (keys []dedup.Key) {
	for i := range r.reqs {
		if r.held[i] != nil {
			keys = append(keys, r.reqs[i].Key)
		}
	}
	return keys
}

// traced reports whether a row that the transaction has written is among those found.
func (r *txRun) traced(found map[dedup.Key]*decision.Record) bool {
	for i, rec := range r.held {
		if row, there := found[r.reqs[i].Key]; there && written(row, rec) {
			return true
		}
	}
	return false
}

// written reports whether row is the one that a transaction has written as rec.
func written(row, rec *decision.Record) bool {
	return row.State == decision.Done && row.Fence == rec.Fence && row.Changed.Equal(rec.Changed)
}

// takeBack repairs the claims of events that have not run, after a handler has ended the
// transaction by COMMIT. Their rows would count as handled (rule 12). Each of these rows waits for
// a copy. A row that another worker has claimed or changed meanwhile stays as it is. The error of a
// single event names no such event.
func (r *txRun) takeBack(ctx context.Context, err error) error {
	ended, ok := errors.AsType[*dedup.TxEndedError](err)
	if !ok {
		return err
	}
	var keys []dedup.Key
	mine := make(map[dedup.Key]*decision.Record)
	for _, i := range ended.Unrun {
		if i < 0 || i >= len(r.reqs) {
			return fmt.Errorf("%s: event %d of %d did not run: %w", r.s.d.Name, i, len(r.reqs), err)
		}
		if rec := r.held[i]; rec != nil {
			keys, mine[r.reqs[i].Key] = append(keys, r.reqs[i].Key), rec
		}
	}
	if len(keys) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	release := func(ctx context.Context, w *work) error {
		found, err := w.read(ctx, eventsTable, keys, w.d.Lock)
		if err != nil {
			return err
		}
		var changed []*decision.Record
		for _, rec := range found {
			if written(rec, mine[rec.Key]) {
				rec.State, rec.Changed = decision.Open, w.now
				changed = append(changed, rec)
			}
		}
		return eventsTable.replace(ctx, w.q, w.d, changed)
	}
	failed := r.s.ownTx(ctx, "take back claims", nil, release)
	for try := 1; r.s.mayPass(failed) && pause(ctx, try) == nil; try++ { // a restart, for example
		failed = r.s.ownTx(ctx, "take back claims", nil, release)
	}
	if failed != nil {
		return decision.NotTakenBack(err, failed)
	}
	return err
}
