package storetest

import (
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txGroupTests cover several events in one transaction, one of which misuses the transaction.
func txGroupTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: a transaction reports its state (rule 12)", needs: TxCheck, run: txState[Tx]},
		{name: "tx: a group ended by COMMIT returns the claims of events that never ran (rule 12)", needs: sql,
			run: txGroupCommit[Tx]},
		{name: "tx: a group ended by ROLLBACK gives back everything (rule 12)", needs: sql,
			run: txGroupRollback[Tx]},
		{name: "tx: a group ended by COMMIT and then failed returns the claims of the others (rule 12)",
			needs: sql, run: txGroupFails[Tx]},
		{name: "tx: a group ended by COMMIT before a statement failed returns the claims of the others (rule 12)",
			needs: sql, run: txGroupFailsInSQL[Tx]},
		{name: "tx: a group ended by COMMIT and then abandoned returns the claims of the others (rule 12)",
			needs: sql, run: txGroupAbandoned[Tx]},
	}
}

// txState needs SQL to bring a transaction into a state other than the first.
func txState[Tx any](k *txKit[Tx]) {
	check := func(tx Tx) error {
		c, ok := any(tx).(dedup.TxChecker)
		require.True(k, ok, "%T has no CheckTx, and Missing of the harness does not list it", tx)
		return c.CheckTx()
	}
	var kept Tx
	k.one(dedup.Fresh, request("open"), func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		kept = tx
		require.NoError(k, check(tx))
		err := k.h.Exec(k.ctx, tx, "open")
		require.NoError(k, check(tx))
		return nil, err
	})
	require.Error(k, check(kept), "a transaction that is over is not to be worked in")
	if k.h.Raw == nil {
		return
	}
	states := map[string]error{"SELECT 1/0": dedup.ErrTxAborted, "COMMIT": dedup.ErrTxEnded,
		"ROLLBACK": dedup.ErrTxEnded}
	for sql, want := range states {
		_, err := k.call([]dedup.Request{request(sql)}, func(tx Tx,
			_ []dedup.Answer) ([]dedup.Completion, error) {
			_ = k.h.Raw(k.ctx, tx, sql)
			return nil, check(tx)
		})
		require.ErrorIs(k, err, want, sql)
		require.NotErrorIs(k, err, dedup.ErrUnavailable, "it is the handler's fault")
	}
}

// group4 runs four events: the first two have their effects, the second executes sql, and the last
// two do not run.
func (k *txKit[Tx]) group4(sql string) []dedup.Request {
	k.Helper()
	var reqs []dedup.Request
	for i := range 4 {
		reqs = append(reqs, request(numbered("group", i)))
	}
	_, err := k.call(reqs, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		err := errors.Join(k.h.Exec(k.ctx, tx, reqs[0].Key.ID), k.h.Exec(k.ctx, tx, reqs[1].Key.ID))
		if err == nil {
			err = k.h.Raw(k.ctx, tx, sql)
		}
		require.NoError(k, err)
		return nil, fmt.Errorf("event 1: %w", &dedup.TxEndedError{Unrun: []int{2, 3}})
	})
	require.ErrorIs(k, err, dedup.ErrTxEnded)
	require.NotErrorIs(k, err, dedup.ErrUnavailable, "it is the handler's fault")
	var ended *dedup.TxEndedError
	require.ErrorAs(k, err, &ended)
	return reqs
}

func txGroupCommit[Tx any](k *txKit[Tx]) {
	reqs := k.group4("COMMIT")
	for _, r := range reqs[:2] {
		k.meets(dedup.Done, r)
		k.count(1, r.Key.ID)
	}
	for _, r := range reqs[2:] {
		k.count(0, r.Key.ID)
		k.unmarked(r)
	}
}

func txGroupRollback[Tx any](k *txKit[Tx]) {
	for _, r := range k.group4("ROLLBACK") {
		k.count(0, r.Key.ID)
		k.unmarked(r)
	}
}

// txGroupFails ends the transaction in the first of three events. The second one fails. An error of
// a group whose transaction goes on is not changed.
func txGroupFails[Tx any](k *txKit[Tx]) {
	reqs := []dedup.Request{request("ends"), request("fails"), request("waits")}
	failed := errors.New("the second event failed")
	for _, sql := range []string{"SELECT 1", "COMMIT"} {
		_, err := k.call(reqs, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
			require.NoError(k, k.h.Exec(k.ctx, tx, reqs[0].Key.ID))
			require.NoError(k, k.h.Raw(k.ctx, tx, sql))
			return nil, &dedup.GroupError{Unrun: []int{1, 2}, Err: failed}
		})
		require.ErrorIs(k, err, failed, sql)
		require.NotErrorIs(k, err, dedup.ErrUnavailable, "it is the handler's fault")
		if sql == "COMMIT" {
			require.ErrorIs(k, err, dedup.ErrTxEnded)
			continue
		}
		require.NotErrorIs(k, err, dedup.ErrTxEnded)
		k.count(0, reqs[0].Key.ID)
	}
	k.meets(dedup.Done, reqs[0])
	k.count(1, reqs[0].Key.ID)
	k.unmarked(reqs[1])
	k.unmarked(reqs[2])
}

// txGroupFailsInSQL ends the transaction in the first of three events. Then a statement of the
// second one fails. That failure must not hide the COMMIT.
func txGroupFailsInSQL[Tx any](k *txKit[Tx]) {
	reqs := []dedup.Request{request("ends"), request("fails"), request("waits")}
	var failed error
	_, err := k.call(reqs, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		require.NoError(k, k.h.Exec(k.ctx, tx, reqs[0].Key.ID))
		require.NoError(k, k.h.Raw(k.ctx, tx, "COMMIT"))
		failed = k.h.Raw(k.ctx, tx, missing)
		return nil, &dedup.GroupError{Unrun: []int{1, 2}, Err: failed}
	})
	require.Error(k, failed)
	require.ErrorIs(k, err, failed)
	require.ErrorIs(k, err, dedup.ErrTxEnded)
	require.NotErrorIs(k, err, dedup.ErrUnavailable, "it is the handler's fault")
	k.meets(dedup.Done, reqs[0])
	k.count(1, reqs[0].Key.ID)
	k.unmarked(reqs[1])
	k.unmarked(reqs[2])
}

// txGroupAbandoned abandons the first of three events, with and without a COMMIT before. Only a
// COMMIT has ended the transaction.
func txGroupAbandoned[Tx any](k *txKit[Tx]) {
	reqs := []dedup.Request{request("hangs"), request("waits"), request("waits too")}
	abandon := func(committed bool) error {
		_, err := k.call(reqs, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
			require.NoError(k, k.h.Exec(k.ctx, tx, reqs[0].Key.ID))
			if committed {
				require.NoError(k, k.h.Raw(k.ctx, tx, "COMMIT"))
			}
			return nil, &dedup.GroupError{Unrun: []int{1, 2}, Err: dedup.ErrAbandoned}
		})
		require.ErrorIs(k, err, dedup.ErrAbandoned)
		require.NotErrorIs(k, err, dedup.ErrUnavailable)
		return err
	}
	require.NotErrorIs(k, abandon(false), dedup.ErrTxEnded)
	k.count(0, reqs[0].Key.ID)
	require.ErrorIs(k, abandon(true), dedup.ErrTxEnded)
	k.meets(dedup.Done, reqs[0])
	k.count(1, reqs[0].Key.ID)
	k.unmarked(reqs[1])
	k.unmarked(reqs[2])
}
