package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/idem-go/idem/dedup"
)

var errUndone = errors.New("pgstore: savepoint: already undone")

// Savepoint implements [dedup.Savepointer]. A handler may set savepoints of its own before and
// after, by Begin or by SQL. undo ends the later ones. Close open rows before a call. Savepoint and
// undo cost one round trip each.
//
// If undo fails, roll the transaction back. The error matches [dedup.ErrTxEnded] if the handler has
// ended the transaction or the savepoint by SQL.
func (t *handlerTx) Savepoint(ctx context.Context) (undo func(context.Context) error, err error) {
	if err := t.CheckTx(); err != nil {
		return nil, err
	}
	name := "idem_" + strconv.Itoa(t.points+1) // names of pgx are sp_1, sp_2
	if _, err := t.Exec(ctx, "savepoint "+name); err != nil {
		return nil, fmt.Errorf("pgstore: savepoint: %w", err)
	}
	point, marks := t.mark()
	undone := false
	return func(ctx context.Context) error {
		if undone {
			return errUndone
		}
		undone = true
		if err := t.rollbackTo(ctx, name); err != nil {
			return err
		}
		t.rewind(marks)
		t.unmark(point)
		return nil
	}, nil
}

func (t *handlerTx) rollbackTo(ctx context.Context, name string) error {
	if err := t.CheckTx(); err != nil && !errors.Is(err, dedup.ErrTxAborted) {
		return err
	}
	// Without arguments, both travel in one message. A failed transaction accepts the first one.
	_, err := t.Exec(ctx, "rollback to savepoint "+name+"; release savepoint "+name)
	switch {
	case sqlState(err) == codeNoSavepoint:
		return fmt.Errorf("pgstore: savepoint: %w: %w", dedup.ErrTxEnded, err)
	case err != nil:
		return fmt.Errorf("pgstore: savepoint: %w", err)
	}
	return nil
}
