package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txFaultTests cover functions that misuse their transaction.
func txFaultTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: a panic rolls back", run: txPanic[Tx]},
		{name: "tx: the transaction cannot be ended by its methods (P-13)", needs: TxGoesOn,
			run: txMethods[Tx]},
		{name: "tx: COMMIT by SQL is found (P-13)", needs: sql, run: txCommitSQL[Tx]},
		{name: "tx: COMMIT by SQL is found behind a statement that failed (P-13)", needs: sql,
			run: txCommitHidden[Tx]},
		{name: "tx: COMMIT by SQL is told with the error of fn (P-13)", needs: sql,
			run: txCommitFails[Tx]},
		{name: "tx: ROLLBACK by SQL is found (P-13)", needs: sql, run: txRollbackSQL[Tx]},
		{name: "tx: COMMIT and a new BEGIN by SQL are found (P-13)", needs: sql,
			run: txBeginSQL[Tx]},
		{name: "tx: an SQL error that is swallowed marks nothing (P-12)", needs: TxAborts,
			run: txSwallowed[Tx]},
		{name: "tx: an abandoned run ends at once and leaves nothing", run: txAbandoned[Tx]},
		{name: "tx: a run abandoned in the middle of a statement (rule 10)", needs: slowSQL,
			run: txAbandonedBusy[Tx]},
		{name: "tx: many runs that end badly leave the store whole", run: txChurn[Tx]},
	}
}

func txPanic[Tx any](k *txKit[Tx]) {
	for range 3 {
		panicked, err := k.caught(func(tx Tx) { panic("boom") })
		require.True(k, panicked != nil || err != nil, "a panic is neither passed on nor an error")
		if panicked != nil {
			require.Equal(k, "boom", panicked)
		}
		k.count(0, "before the panic")
	}
	k.unmarked(request("e"))
}

// caught runs bad in a transaction, after an effect, and returns the panic and the error.
func (k *txKit[Tx]) caught(bad func(tx Tx)) (panicked any, err error) {
	defer func() { panicked = recover() }()
	answers := make([]dedup.Answer, 1)
	err = k.s.ClaimTx(k.ctx, runLimit, []dedup.Request{request("e")}, answers,
		func(tx Tx) ([]dedup.Completion, error) {
			if err := k.h.Exec(k.ctx, tx, "before the panic"); err != nil {
				return nil, err
			}
			bad(tx)
			return nil, nil
		})
	return nil, err
}

// txMethods tries the methods that transactions of the known clients have.
func txMethods[Tx any](k *txKit[Tx]) {
	tried := 0
	k.one(dedup.Fresh, request("e"), func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		if t, ok := any(tx).(interface{ Commit(context.Context) error }); ok {
			tried++
			require.Error(k, t.Commit(k.ctx), "fn may not commit")
		}
		if t, ok := any(tx).(interface{ Rollback(context.Context) error }); ok {
			tried++
			require.Error(k, t.Rollback(k.ctx), "fn may not roll back")
		}
		if t, ok := any(tx).(interface{ Commit() error }); ok {
			tried++
			require.Error(k, t.Commit(), "fn may not commit")
		}
		if t, ok := any(tx).(interface{ Rollback() error }); ok {
			tried++
			require.Error(k, t.Rollback(), "fn may not roll back")
		}
		return nil, k.h.Exec(k.ctx, tx, "goes on")
	})
	k.Logf("%d methods refuse", tried)
	k.count(1, "goes on")
	k.meets(dedup.Done, request("e"))
}

func (k *txKit[Tx]) endsBySQL(statements ...string) {
	k.Helper()
	_, err := k.call([]dedup.Request{request("e")}, func(tx Tx,
		_ []dedup.Answer) ([]dedup.Completion, error) {
		if err := k.h.Exec(k.ctx, tx, "e"); err != nil {
			return nil, err
		}
		for _, s := range statements {
			if err := k.h.Raw(k.ctx, tx, s); err != nil {
				return nil, nil //nolint:nilerr // the handler of this test does not care
			}
		}
		return nil, nil
	})
	require.ErrorIs(k, err, dedup.ErrTxEnded)
	require.NotErrorIs(k, err, dedup.ErrUnavailable,
		"it is the handler's fault, and would be the next time")
	for range 3 { // connections are whole, and not inside a transaction
		k.unmarked(request(fmt.Sprint("f", time.Now().UnixNano())))
	}
}

func txCommitSQL[Tx any](k *txKit[Tx]) { k.endsBySQL("COMMIT") }

// missing is a statement that fails in every database.
const missing = "INSERT INTO idem_no_such_table VALUES (1)"

// txCommitHidden ignores the failure of a statement after the COMMIT.
func txCommitHidden[Tx any](k *txKit[Tx]) {
	k.endsBySQL("COMMIT", missing)
	k.meets(dedup.Done, request("e"))
	k.count(1, "e")
}

// txCommitFails returns the failure of a statement after the COMMIT. Then the next claim finds the
// event done, and only the error tells that an effect may be missing.
func txCommitFails[Tx any](k *txKit[Tx]) {
	var failed error
	_, err := k.call([]dedup.Request{request("e")}, func(tx Tx,
		_ []dedup.Answer) ([]dedup.Completion, error) {
		require.NoError(k, k.h.Exec(k.ctx, tx, "e"))
		require.NoError(k, k.h.Raw(k.ctx, tx, "COMMIT"))
		failed = k.h.Raw(k.ctx, tx, missing)
		return nil, failed
	})
	require.Error(k, failed)
	require.ErrorIs(k, err, failed)
	require.ErrorIs(k, err, dedup.ErrTxEnded)
	require.NotErrorIs(k, err, dedup.ErrUnavailable, "it is the handler's fault")
	k.meets(dedup.Done, request("e"))
	k.count(1, "e")
}

func txRollbackSQL[Tx any](k *txKit[Tx]) {
	k.endsBySQL("ROLLBACK")
	k.count(0, "e")
	k.unmarked(request("e"))
}

// txBeginSQL: The status of the session is as before, but the transaction is another one.
func txBeginSQL[Tx any](k *txKit[Tx]) { k.endsBySQL("ROLLBACK", "BEGIN") }

func txSwallowed[Tx any](k *txKit[Tx]) {
	swallow := func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		if err := k.h.Exec(k.ctx, tx, "swallowed"); err != nil {
			return nil, err
		}
		if k.h.Raw(k.ctx, tx, "SELECT 1/0") == nil {
			return nil, errNotExpected
		}
		return nil, nil
	}
	_, err := k.call([]dedup.Request{request("e")}, swallow)
	require.Error(k, err)
	require.NotErrorIs(k, err, errNotExpected)
	require.NotErrorIs(k, err, dedup.ErrUnavailable)
	require.NotErrorIs(k, err, dedup.ErrUnknownCommit)
	_, err = k.call([]dedup.Request{request("e"), request("f")}, swallow)
	require.Error(k, err)
	k.count(0, "swallowed")
	k.unmarked(request("e"))
	k.unmarked(request("f"))
}

func txAbandoned[Tx any](k *txKit[Tx]) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	began := time.Now()
	_, err := k.call([]dedup.Request{request("e")}, func(tx Tx,
		_ []dedup.Answer) ([]dedup.Completion, error) {
		if err := k.h.Exec(k.ctx, tx, "abandoned"); err != nil {
			return nil, err
		}
		go func() { // an abandoned run: it holds tx and may use tx at any time
			defer close(stopped)
			<-stop
			_ = k.h.Exec(k.ctx, tx, "abandoned")
		}()
		return nil, fmt.Errorf("time is up: %w", dedup.ErrAbandoned)
	})
	require.ErrorIs(k, err, dedup.ErrAbandoned)
	require.Less(k, time.Since(began), 10*time.Second, "no caller waits for an abandoned run")
	k.unmarked(request("e")) // its claim is gone with its connection, although it still runs
	close(stop)
	<-stopped
	k.unmarked(request("f"))
	k.count(0, "abandoned")
}

// txAbandonedBusy: The connection is closed while the handler uses the transaction. The handler
// learns of the close at once, the server only at the next look. Until then the key is Busy.
func txAbandonedBusy[Tx any](k *txKit[Tx]) {
	ended, began := make(chan error, 1), time.Now()
	_, err := k.call([]dedup.Request{request("e")}, func(tx Tx,
		_ []dedup.Answer) ([]dedup.Completion, error) {
		if err := k.h.Exec(k.ctx, tx, "abandoned"); err != nil {
			return nil, err
		}
		started := make(chan struct{})
		go func() {
			close(started)
			ended <- k.h.Raw(k.ctx, tx, k.h.Slow)
		}()
		<-started
		return nil, fmt.Errorf("time is up: %w", dedup.ErrAbandoned)
	})
	require.ErrorIs(k, err, dedup.ErrAbandoned)
	require.Less(k, time.Since(began), 10*time.Second, "no caller waits for an abandoned run")
	require.Error(k, <-ended)
	require.Less(k, time.Since(began), 15*time.Second, "the connection is closed under its user")
	for busy := true; busy; {
		answers, err := k.call([]dedup.Request{request("e")}, k.effect("heir"))
		require.NoError(k, err)
		busy = answers[0].Verdict == dedup.Busy
		require.Less(k, time.Since(began), 25*time.Second,
			"the database lets a dead holder keep its key")
	}
	k.count(1, "heir")
	k.count(0, "abandoned")
}

// txChurn finds connections that are leaked or given back in a bad state.
func txChurn[Tx any](k *txKit[Tx]) {
	why := errors.New("fails")
	for i := range 60 {
		r := request(numbered("churn", i))
		switch i % 3 {
		case 0:
			_, err := k.call([]dedup.Request{r}, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion,
				error) {
				return nil, errors.Join(why, k.h.Exec(k.ctx, tx, "churn"))
			})
			require.ErrorIs(k, err, why)
		case 1:
			_, err := k.call([]dedup.Request{r}, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion,
				error) {
				return nil, errors.Join(dedup.ErrAbandoned, k.h.Exec(k.ctx, tx, "churn"))
			})
			require.ErrorIs(k, err, dedup.ErrAbandoned)
		case 2:
			panicked, err := k.caught(func(Tx) { panic(i) })
			require.True(k, err != nil || panicked != nil)
		}
	}
	k.count(0, "churn")
	k.count(0, "before the panic")
	k.unmarked(request("e"))
}
