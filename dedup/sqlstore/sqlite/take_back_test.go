package sqlite_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore/internal/endtest"
)

// Rule 12: a handler has committed the claim of an event that did not run. Before the claim is taken
// back, another process has handled the event. That record stays.
func TestTakingBackLeavesOthersAlone_Rule12(t *testing.T) {
	s := newTxStore(t)
	other := openStore(t, pathOf(t, s))
	reqs, answers := append(request("a"), request("b")...), make([]dedup.Answer, 2)
	err := s.ClaimTx(t.Context(), time.Minute, reqs, answers,
		func(tx *sql.Tx) ([]dedup.Completion, error) {
			_, err := tx.ExecContext(t.Context(), "COMMIT")
			require.NoError(t, err)
			require.NoError(t, other.(dedup.Operator).Forget(t.Context(), reqs[1].Key))
			require.NoError(t, other.(dedup.TxStore[*sql.Tx]).ClaimTx(t.Context(), time.Minute, reqs[1:],
				make([]dedup.Answer, 1), func(*sql.Tx) ([]dedup.Completion, error) { return nil, nil }))
			return nil, &dedup.TxEndedError{Unrun: []int{1}}
		})
	require.ErrorIs(t, err, dedup.ErrTxEnded)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs[1:], answers[:1],
		func(*sql.Tx) ([]dedup.Completion, error) {
			t.Error("handled twice")
			return nil, nil
		}))
	require.Equal(t, dedup.Done, answers[0].Verdict)
}

// Rule 12: a handler sends COMMIT as SQL, and the check of the transaction cannot tell. The rows of
// the group tell whether the transaction was committed or rolled back.
func TestHiddenCommit_Rule12(t *testing.T) {
	const rollsBack = "INSERT OR ROLLBACK INTO effects VALUES ('first')"
	sends := func(statements ...string) func(*testing.T, *sql.Tx) error {
		return func(t *testing.T, tx *sql.Tx) error { return endtest.All(t, tx, statements...) }
	}
	for name, c := range map[string]struct {
		run       func(*testing.T, *sql.Tx) error
		committed bool
	}{
		"COMMIT, and a row that is there":        {sends("COMMIT", "INSERT INTO effects VALUES ('first')"), true},
		"COMMIT, BEGIN, and a rollback":          {sends("COMMIT", "BEGIN", rollsBack), true},
		"a rollback":                             {sends(rollsBack), false},
		"COMMIT, and a failure that is ignored":  {sendsOn("COMMIT", rollsBack), true},
		"a failure that is ignored":              {sendsOn(rollsBack), false},
		"COMMIT, and a method":                   {rollsBackTx("COMMIT"), true},
		"COMMIT, a failure, and a method":        {rollsBackTx("COMMIT", rollsBack), true},
		"a failure, and a method":                {rollsBackTx(rollsBack), false},
		"a method":                               {rollsBackTx(), false},
		"COMMIT, BEGIN, an effect, and a method": {rollsBackTx("COMMIT", "BEGIN", "INSERT INTO effects VALUES ('x')"), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTxStore(t)
			_, err := openDB(t, pathOf(t, s)).ExecContext(t.Context(),
				"CREATE UNIQUE INDEX one_effect ON effects (name); INSERT INTO effects VALUES ('first')")
			require.NoError(t, err)
			err = endtest.Group(t, s, c.committed, func(tx *sql.Tx) error { return c.run(t, tx) })
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
		})
	}
}

// sendsOn ignores failures. The error is that of a later statement.
func sendsOn(statements ...string) func(*testing.T, *sql.Tx) error {
	return func(t *testing.T, tx *sql.Tx) error {
		for _, text := range statements {
			_, _ = tx.ExecContext(t.Context(), text)
		}
		_, err := tx.ExecContext(t.Context(), "INSERT INTO effects VALUES ('later')")
		return err
	}
}

// rollsBackTx ignores failures, and calls Rollback.
func rollsBackTx(statements ...string) func(*testing.T, *sql.Tx) error {
	return func(t *testing.T, tx *sql.Tx) error {
		for _, text := range statements {
			_, _ = tx.ExecContext(t.Context(), text)
		}
		require.ErrorIs(t, tx.Rollback(), dedup.ErrTxEnded)
		_, err := tx.ExecContext(t.Context(), "INSERT INTO effects VALUES ('later')")
		return err
	}
}

// P-13: the error of a handler that has sent COMMIT as SQL tells of that.
func TestFailureBehindACommit_P13(t *testing.T) {
	endtest.Single(t, newTxStore(t), "COMMIT", "INSERT INTO nowhere VALUES (1)")
}
