package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// This file is about work that handlers keep for the end of their transaction (rule 22).

var (
	_ dedup.TxKeeper  = (*handlerTx)(nil)
	_ dedup.TxKeeper  = (*nestedTx)(nil)
	_ dedup.TxChecker = (*nestedTx)(nil)
)

// keptWork waits for the end of the transaction.
type keptWork struct {
	key  any
	work dedup.TxWork
}

var errNoWork = errors.New("pgstore: nothing to keep for the end of the transaction")

// KeepTx implements [dedup.TxKeeper].
func (t *handlerTx) KeepTx(key any, begin func() dedup.TxWork) (dedup.TxWork, error) {
	if t.closed.Load() {
		return nil, fmt.Errorf("pgstore: %w: %w", dedup.ErrTxEnded, pgx.ErrTxClosed)
	}
	for _, k := range t.works {
		if k.key == key {
			return k.work, nil
		}
	}
	w := begin()
	if w == nil {
		return nil, errNoWork
	}
	t.works = append(t.works, keptWork{key, w})
	return w, nil
}

// marks says how much of each work there is.
func (t *handlerTx) marks() []int {
	marks := make([]int, len(t.works))
	for i, k := range t.works {
		marks[i] = k.work.Mark()
	}
	return marks
}

// rewind drops what has come since.
func (t *handlerTx) rewind(marks []int) {
	for i, k := range t.works {
		mark := 0
		if i < len(marks) {
			mark = marks[i]
		}
		k.work.Rewind(mark)
	}
}

// nestedTx is a savepoint that a handler sets with Begin. What is kept in it goes with it if it is rolled back.
type nestedTx struct {
	pgx.Tx // of the driver, which knows whether the savepoint has ended
	of     *handlerTx
	marks  []int
	ended  bool
}

func (t *handlerTx) nest(ctx context.Context, in pgx.Tx) (pgx.Tx, error) {
	tx, err := in.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &nestedTx{Tx: tx, of: t, marks: t.marks()}, nil
}

func (n *nestedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if n.of.closed.Load() {
		return nil, pgx.ErrTxClosed
	}
	return n.of.nest(ctx, n.Tx)
}

func (n *nestedTx) Commit(ctx context.Context) error {
	n.ended = true
	return n.Tx.Commit(ctx)
}

func (n *nestedTx) Rollback(ctx context.Context) error {
	n.ended = true
	if err := n.Tx.Rollback(ctx); err != nil { // also if it was committed before
		return err
	}
	n.of.rewind(n.marks)
	return nil
}

// CheckTx implements [dedup.TxChecker] as the transaction around it does.
func (n *nestedTx) CheckTx() error { return n.of.CheckTx() }

// KeepTx implements [dedup.TxKeeper]. What is kept is that of the transaction around it.
func (n *nestedTx) KeepTx(key any, begin func() dedup.TxWork) (dedup.TxWork, error) {
	if n.ended && !n.of.closed.Load() {
		return nil, fmt.Errorf("pgstore: savepoint: %w", pgx.ErrTxClosed)
	}
	return n.of.KeepTx(key, begin)
}
