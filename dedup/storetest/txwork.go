package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txWorkTests cover the work that handlers keep for the end of their transaction.
func txWorkTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: work is done once, after the function and before COMMIT, in order (rule 22)",
			needs: TxKeep, run: txWork[Tx]},
		{name: "tx: the works of a group are done once (rule 22)", needs: TxKeep,
			run: txWorkGroup[Tx]},
		{name: "tx: no work is done in a transaction that is rolled back", needs: TxKeep,
			run: txWorkRolledBack[Tx]},
		{name: "tx: no work is done in a transaction that was ended by SQL (P-13)", needs: TxKeep,
			run: txWorkEnded[Tx]},
		{name: "tx: an error or a panic of work rolls back everything", needs: TxKeep,
			run: txWorkFails[Tx]},
		{name: "tx: work is rewound with a savepoint (rule 20)", needs: TxKeep,
			run: txWorkRewound[Tx]},
		{name: "tx: work is rewound with a savepoint of the handler's own", needs: TxKeep,
			run: txWorkNested[Tx]},
		{name: "tx: nothing is kept after the function has returned", needs: TxKeep,
			run: txWorkLate[Tx]},
		{name: "tx: nothing is kept of an earlier run", needs: TxKeep, run: txWorkAgain[Tx]},
		{name: "tx: work in a transaction without a claim", needs: TxKeep, run: txWorkRunTx[Tx]},
	}
}

// work writes entries as effects and records the calls of each method.
type work[Tx any] struct {
	k       *txKit[Tx]
	name    string
	entries []string
	journal *[]string
	flush   func(ctx context.Context, tx Tx) error // called after the entries; nil: no call
}

func (w *work[Tx]) Flush(ctx context.Context, tx any) error {
	*w.journal = append(*w.journal, fmt.Sprintf("flush %s: %q", w.name, w.entries))
	for _, e := range w.entries {
		if err := w.k.h.Exec(ctx, tx.(Tx), e); err != nil {
			return err
		}
	}
	if w.flush != nil {
		return w.flush(ctx, tx.(Tx))
	}
	return nil
}

func (w *work[Tx]) Mark() int { return len(w.entries) }

func (w *work[Tx]) Rewind(mark int) { w.entries = w.entries[:mark] }

// workKey is a key such as those of users: comparable, and of a type of their own.
type workKey string

// works keeps works in transactions.
type works[Tx any] struct {
	k       *txKit[Tx]
	journal []string
	flush   func(ctx context.Context, tx Tx) error
}

func (w *works[Tx]) keep(tx Tx, name string, entries ...string) {
	w.k.Helper()
	keeper, ok := any(tx).(dedup.TxKeeper)
	require.True(w.k, ok, "%T has no KeepTx, and Missing of the harness does not list it", tx)
	kept, err := keeper.KeepTx(workKey(name), func() dedup.TxWork {
		return &work[Tx]{k: w.k, name: name, journal: &w.journal, flush: w.flush}
	})
	require.NoError(w.k, err)
	mine, ok := kept.(*work[Tx])
	require.True(w.k, ok)
	require.Equal(w.k, name, mine.name, "the work of another key")
	mine.entries = append(mine.entries, entries...)
}

func txWork[Tx any](k *txKit[Tx]) {
	w := &works[Tx]{k: k}
	w.flush = func(ctx context.Context, tx Tx) error {
		k.count(0, "effect") // not committed yet
		return k.h.Exec(ctx, tx, "by flush")
	}
	k.one(dedup.Fresh, request("e"), func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		w.keep(tx, "b", "b1")
		w.keep(tx, "a", "a1", "a2")
		require.NoError(k, k.h.Exec(k.ctx, tx, "effect"))
		w.keep(tx, "b", "b2")
		w.journal = append(w.journal, "returns")
		return nil, nil
	})
	require.Equal(k, []string{"returns", `flush b: ["b1" "b2"]`, `flush a: ["a1" "a2"]`}, w.journal,
		"works in the order in which they were begun")
	for _, effect := range []string{"effect", "a1", "a2", "b1", "b2"} {
		k.count(1, effect)
	}
	k.count(2, "by flush")
	k.meets(dedup.Done, request("e"))
	require.Len(k, w.journal, 3)
}

func txWorkGroup[Tx any](k *txKit[Tx]) {
	w := &works[Tx]{k: k}
	var reqs []dedup.Request
	for i := range 3 {
		reqs = append(reqs, request(numbered("group", i)))
	}
	_, err := k.call(reqs, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		for _, r := range reqs {
			w.keep(tx, "w", r.Key.ID)
		}
		return nil, nil
	})
	require.NoError(k, err)
	require.Equal(k, []string{fmt.Sprintf("flush w: %q", []string{reqs[0].Key.ID, reqs[1].Key.ID,
		reqs[2].Key.ID})}, w.journal)
	for _, r := range reqs {
		k.count(1, r.Key.ID)
		k.meets(dedup.Done, r)
	}
}

func txWorkRolledBack[Tx any](k *txKit[Tx]) {
	w, why := &works[Tx]{k: k}, errors.New("why")
	for name, fails := range map[string]error{"fails": why, "abandoned": fmt.Errorf("%w: %w", why,
		dedup.ErrAbandoned)} {
		for _, reqs := range [][]dedup.Request{{request(name)},
			{request(name), request(name + " too")}} {
			_, err := k.call(reqs, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
				w.keep(tx, "w", "kept")
				return nil, fails
			})
			require.ErrorIs(k, err, why)
		}
		k.unmarked(request(name))
	}
	panicked, err := k.caught(func(tx Tx) {
		w.keep(tx, "w", "kept")
		panic("boom")
	})
	require.True(k, panicked != nil || err != nil)
	require.Empty(k, w.journal)
	k.count(0, "kept")
	k.unmarked(request("e"))
}

func txWorkEnded[Tx any](k *txKit[Tx]) {
	if k.h.Raw == nil {
		k.Skip("missing in the harness: SQL")
	}
	w := &works[Tx]{k: k}
	for _, sql := range []string{"COMMIT", "ROLLBACK"} {
		_, err := k.call([]dedup.Request{request(sql)}, func(tx Tx,
			_ []dedup.Answer) ([]dedup.Completion, error) {
			w.keep(tx, "w", "kept")
			return nil, k.h.Raw(k.ctx, tx, sql)
		})
		require.ErrorIs(k, err, dedup.ErrTxEnded, sql)
		require.NotErrorIs(k, err, dedup.ErrUnavailable)
	}
	require.Empty(k, w.journal)
	k.count(0, "kept")
}

func txWorkFails[Tx any](k *txKit[Tx]) {
	w, why := &works[Tx]{k: k}, errors.New("why")
	keeps := func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		w.keep(tx, "first", "kept")
		w.keep(tx, "second", "kept")
		return nil, k.h.Exec(k.ctx, tx, "effect")
	}
	for _, reqs := range [][]dedup.Request{{request("e")}, {request("e"), request("f")}} {
		w.flush, w.journal = func(context.Context, Tx) error {
			return fmt.Errorf("wrapped: %w", why)
		}, nil
		_, err := k.call(reqs, keeps)
		require.ErrorIs(k, err, why)
		require.NotErrorIs(k, err, dedup.ErrUnavailable, "the store did not report that")
		require.Equal(k, []string{`flush first: ["kept"]`}, w.journal, "later work is not done")
		w.flush = func(context.Context, Tx) error { panic("boom") }
		_, err = k.call(reqs, keeps)
		require.ErrorContains(k, err, "boom", "a panic of work is an error")
	}
	w.flush, w.journal = nil, nil
	k.count(0, "effect")
	k.count(0, "kept")
	k.one(dedup.Fresh, request("e"), keeps)
	k.count(1, "effect")
	k.count(2, "kept")
	k.unmarked(request("f"))
}

func txWorkRewound[Tx any](k *txKit[Tx]) {
	if lacking(k.h.Missing, Savepoints) {
		k.Skip("missing in the harness: savepoints")
	}
	w := &works[Tx]{k: k}
	k.one(dedup.Fresh, request("e"), func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		w.keep(tx, "w", "before")
		undo := k.savepoint(tx)
		w.keep(tx, "w", "undone")
		w.keep(tx, "later", "undone too")
		inner := k.savepoint(tx)
		w.keep(tx, "w", "undone twice")
		require.NoError(k, inner(k.ctx))
		require.NoError(k, undo(k.ctx))
		w.keep(tx, "w", "after")
		k.savepoint(tx) // and left as it is
		w.keep(tx, "w", "kept")
		return nil, nil
	})
	require.Equal(k, []string{`flush w: ["before" "after" "kept"]`, `flush later: []`}, w.journal)
}

// txWorkNested is for transactions with a method Begin, for which there is no ability to declare.
func txWorkNested[Tx any](k *txKit[Tx]) {
	w := &works[Tx]{k: k}
	k.one(dedup.Fresh, request("e"), func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		begin := func(tx Tx) (_ Tx, commit, rollback func(context.Context) error) {
			b, ok := any(tx).(interface {
				Begin(ctx context.Context) (Tx, error)
			})
			if !ok {
				k.Skipf("%T has no Begin", tx)
			}
			nested, err := b.Begin(k.ctx)
			require.NoError(k, err)
			n, ok := any(nested).(interface {
				Commit(ctx context.Context) error
				Rollback(ctx context.Context) error
			})
			require.True(k, ok)
			return nested, n.Commit, n.Rollback
		}
		w.keep(tx, "w", "before")
		nested, commit, rollback := begin(tx)
		w.keep(nested, "w", "undone")
		inner, keep, _ := begin(nested)
		w.keep(inner, "later", "undone too")
		require.NoError(k, keep(k.ctx))
		require.NoError(k, rollback(k.ctx))
		require.Error(k, commit(k.ctx))
		nested, commit, rollback = begin(tx)
		w.keep(nested, "w", "kept")
		w.keep(tx, "w", "kept too")
		require.NoError(k, commit(k.ctx))
		require.Error(k, rollback(k.ctx), "committed work stays")
		return nil, nil
	})
	require.Equal(k, []string{`flush w: ["before" "kept" "kept too"]`, `flush later: []`},
		w.journal)
}

func txWorkLate[Tx any](k *txKit[Tx]) {
	var lent Tx
	late := func(tx Tx) {
		k.Helper()
		_, err := any(tx).(dedup.TxKeeper).KeepTx(workKey("w"), func() dedup.TxWork {
			k.Error("begun")
			return nil
		})
		require.ErrorIs(k, err, dedup.ErrTxEnded)
	}
	w := &works[Tx]{k: k}
	w.flush = func(ctx context.Context, tx Tx) error {
		late(lent)
		if _, ok := any(tx).(dedup.TxKeeper); ok {
			late(tx)
		}
		for _, end := range endsOf(tx) {
			require.Error(k, end(ctx), "the transaction is the store's to end")
		}
		return nil
	}
	keeps := func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		lent = tx
		w.keep(tx, "w", "kept")
		return nil, nil
	}
	k.one(dedup.Fresh, request("e"), keeps)
	late(lent)
	k.count(1, "kept")
	why := errors.New("why")
	for _, fails := range []error{why, errors.Join(why, dedup.ErrAbandoned)} {
		_, err := k.call([]dedup.Request{request("f")}, func(tx Tx,
			answers []dedup.Answer) ([]dedup.Completion, error) {
			_, _ = keeps(tx, answers)
			return nil, fails
		})
		require.ErrorIs(k, err, why)
		late(lent)
	}
	k.count(1, "kept")
}

// endsOf are the methods that end a transaction.
func endsOf(tx any) (all []func(context.Context) error) {
	if t, ok := tx.(interface {
		Commit(ctx context.Context) error
		Rollback(ctx context.Context) error
	}); ok {
		all = append(all, t.Commit, t.Rollback)
	}
	return all
}

func txWorkAgain[Tx any](k *txKit[Tx]) {
	w, why := &works[Tx]{k: k}, errors.New("why")
	for i := range 3 {
		_, err := k.call([]dedup.Request{request("e")}, func(tx Tx,
			_ []dedup.Answer) ([]dedup.Completion, error) {
			w.keep(tx, "w", numbered("run", i))
			if i < 2 {
				return nil, why
			}
			return nil, nil
		})
		require.Equal(k, i < 2, errors.Is(err, why))
	}
	require.Equal(k, []string{fmt.Sprintf("flush w: %q", []string{numbered("run", 2)})}, w.journal)
}

func txWorkRunTx[Tx any](k *txKit[Tx]) {
	runner, ok := k.s.(dedup.TxRunner[Tx])
	if !ok {
		k.Skipf("%T has no RunTx", k.s)
	}
	w := &works[Tx]{k: k}
	run := func() error {
		return runner.RunTx(k.ctx, runLimit, func(tx Tx) error {
			w.keep(tx, "w", "kept")
			return k.h.Exec(k.ctx, tx, "effect")
		})
	}
	require.NoError(k, run())
	require.Equal(k, []string{`flush w: ["kept"]`}, w.journal)
	why := errors.New("why")
	w.flush = func(context.Context, Tx) error { return why }
	require.ErrorIs(k, run(), why)
	k.count(1, "kept")
	k.count(1, "effect")
}
