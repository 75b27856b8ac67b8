package storetest

import (
	"context"
	"errors"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txSavepointTests cover the undoing of a part of a transaction (rule 20: a refusal is kept, the
// effects of the refused handler are not).
func txSavepointTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: undo takes back statements after a savepoint, mark and result stay (rule 20)",
			needs: Savepoints, run: txUndo[Tx]},
		{name: "tx: a savepoint that is not undone changes nothing", needs: Savepoints,
			run: txNotUndone[Tx]},
		{name: "tx: undo after a statement that failed (P-12)", needs: Savepoints,
			run: txUndoFailed[Tx]},
		{name: "tx: savepoints one within the other", needs: Savepoints, run: txUndoNested[Tx]},
		{name: "tx: undo in a transaction that was ended (P-13)", needs: Savepoints,
			run: txUndoEnded[Tx]},
		{name: "tx: a savepoint and its undo are for the time of the function", needs: Savepoints,
			run: txUndoLate[Tx]},
	}
}

func (k *txKit[Tx]) savepoint(tx Tx) (undo func(context.Context) error) {
	k.Helper()
	s, ok := any(tx).(dedup.Savepointer)
	require.True(k, ok, "%T has no Savepoint, and Missing of the harness does not list it", tx)
	undo, err := s.Savepoint(k.ctx)
	require.NoError(k, err)
	return undo
}

// usable is nil if the transaction still accepts statements, as far as the transaction reports.
func (k *txKit[Tx]) usable(tx Tx) error {
	if c, ok := any(tx).(dedup.TxChecker); ok {
		return c.CheckTx()
	}
	return nil
}

func txUndo[Tx any](k *txKit[Tx]) {
	r := request("e")
	k.one(dedup.Fresh, r, func(tx Tx, answers []dedup.Answer) ([]dedup.Completion, error) {
		require.NoError(k, k.h.Exec(k.ctx, tx, "before"))
		undo := k.savepoint(tx)
		for range 3 {
			require.NoError(k, k.h.Exec(k.ctx, tx, "undone"))
		}
		require.NoError(k, undo(k.ctx))
		require.NoError(k, k.usable(tx))
		require.Error(k, undo(k.ctx), "undo twice")
		require.NoError(k, k.usable(tx))
		d := completion(r.Held(dedup.Token{}, answers[0]))
		if !lacking(k.h.Missing, Results) {
			d.Result = dedup.Result{Schema: 1, Data: []byte("refused")}
		}
		return []dedup.Completion{d}, k.h.Exec(k.ctx, tx, "after")
	})
	k.count(1, "before")
	k.count(0, "undone")
	k.count(1, "after")
	a := k.meets(dedup.Done, r)
	if !lacking(k.h.Missing, Results) {
		require.Equal(k, "refused", string(a.Result.Data))
	}
}

func txNotUndone[Tx any](k *txKit[Tx]) {
	k.one(dedup.Fresh, request("e"), func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		k.savepoint(tx)
		return nil, k.h.Exec(k.ctx, tx, "kept")
	})
	k.count(1, "kept")
	why := errors.New("why")
	_, err := k.call([]dedup.Request{request("f")}, func(tx Tx,
		_ []dedup.Answer) ([]dedup.Completion, error) {
		k.savepoint(tx)
		return nil, errors.Join(k.h.Exec(k.ctx, tx, "rolled back"), why)
	})
	require.ErrorIs(k, err, why)
	k.count(0, "rolled back")
	k.unmarked(request("f"))
}

func txUndoFailed[Tx any](k *txKit[Tx]) {
	if k.h.Raw == nil {
		k.Skip("missing in the harness: SQL")
	}
	k.one(dedup.Fresh, request("e"), func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		undo := k.savepoint(tx)
		require.NoError(k, k.h.Exec(k.ctx, tx, "undone"))
		require.Error(k, k.h.Raw(k.ctx, tx, "SELECT 1/0"))
		if _, ok := any(tx).(dedup.TxChecker); ok {
			require.ErrorIs(k, k.usable(tx), dedup.ErrTxAborted)
			_, err := any(tx).(dedup.Savepointer).Savepoint(k.ctx)
			require.ErrorIs(k, err, dedup.ErrTxAborted,
				"a savepoint in a transaction that has failed")
		}
		require.NoError(k, undo(k.ctx))
		require.NoError(k, k.usable(tx))
		return nil, k.h.Exec(k.ctx, tx, "after")
	})
	k.count(0, "undone")
	k.count(1, "after")
	k.meets(dedup.Done, request("e"))
}

func txUndoNested[Tx any](k *txKit[Tx]) {
	k.one(dedup.Fresh, request("e"), func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		add := func(effect string) { require.NoError(k, k.h.Exec(k.ctx, tx, effect)) }
		outer := k.savepoint(tx)
		add("outer")
		inner := k.savepoint(tx)
		add("inner")
		require.NoError(k, inner(k.ctx))
		second := k.savepoint(tx)
		add("second")
		_ = second // goes with the outer one
		require.NoError(k, outer(k.ctx))
		third := k.savepoint(tx)
		add("third")
		require.NoError(k, third(k.ctx))
		k.savepoint(tx)
		add("kept")
		return nil, nil
	})
	for _, undone := range []string{"outer", "inner", "second", "third"} {
		k.count(0, undone)
	}
	k.count(1, "kept")
}

func txUndoEnded[Tx any](k *txKit[Tx]) {
	if k.h.Raw == nil {
		k.Skip("missing in the harness: SQL")
	}
	for _, sql := range []string{"COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN"} {
		_, err := k.call([]dedup.Request{request(sql)}, func(tx Tx,
			_ []dedup.Answer) ([]dedup.Completion, error) {
			undo := k.savepoint(tx)
			require.NoError(k, k.h.Raw(k.ctx, tx, sql))
			return nil, undo(k.ctx)
		})
		require.ErrorIs(k, err, dedup.ErrTxEnded, sql)
		require.NotErrorIs(k, err, dedup.ErrUnavailable, "it is the handler's fault")
	}
}

func txUndoLate[Tx any](k *txKit[Tx]) {
	var undo func(context.Context) error
	var kept Tx
	k.one(dedup.Fresh, request("e"), func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		kept, undo = tx, k.savepoint(tx)
		return nil, k.h.Exec(k.ctx, tx, "kept")
	})
	require.Error(k, undo(k.ctx))
	_, err := any(kept).(dedup.Savepointer).Savepoint(k.ctx)
	require.Error(k, err)
	k.count(1, "kept")
	k.meets(dedup.Done, request("e"))
}
