package sqlite_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
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
