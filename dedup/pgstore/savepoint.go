package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/idem-go/idem/dedup"
)

var errUndone = errors.New("pgstore: savepoint: undone already")

// Savepoint implements [dedup.Savepointer]. Savepoints of the handler's own, by Begin or by SQL, may be set before and after it; undo
// ends those that were set after. Rows that the handler left open must be closed first. Each of the two is one round trip.
//
// What undo says if it fails is why the transaction must be rolled back: the error matches [dedup.ErrTxEnded] if the handler ended
// the transaction or the savepoint by SQL.
func (t *handlerTx) Savepoint(ctx context.Context) (undo func(context.Context) error, err error) {
	if err := t.CheckTx(); err != nil {
		return nil, err
	}
	t.points++
	name := "idem_" + strconv.Itoa(t.points) // pgx calls its own sp_1, sp_2
	if _, err := t.Exec(ctx, "savepoint "+name); err != nil {
		return nil, fmt.Errorf("pgstore: savepoint: %w", err)
	}
	undone, marks := false, t.marks()
	return func(ctx context.Context) error {
		if undone {
			return errUndone
		}
		undone = true
		if err := t.rollbackTo(ctx, name); err != nil {
			return err
		}
		t.rewind(marks)
		return nil
	}, nil
}

func (t *handlerTx) rollbackTo(ctx context.Context, name string) error {
	if err := t.CheckTx(); err != nil && !errors.Is(err, dedup.ErrTxAborted) {
		return err
	}
	// Without arguments, both travel in one message. The first is what the server takes in a transaction that has failed.
	_, err := t.Exec(ctx, "rollback to savepoint "+name+"; release savepoint "+name)
	switch {
	case sqlState(err) == codeNoSavepoint:
		return fmt.Errorf("pgstore: savepoint: %w: %w", dedup.ErrTxEnded, err)
	case err != nil:
		return fmt.Errorf("pgstore: savepoint: %w", err)
	}
	return nil
}
