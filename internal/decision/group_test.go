package decision_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// Rule 12: the error of a group names the events that did not run, also behind a refused Rollback.
func TestEndedBySQL_Rule12(t *testing.T) {
	t.Parallel()
	failed := errors.New("on purpose")
	owned := fmt.Errorf("only the store may end the transaction: %w", dedup.ErrTxEnded)
	ended := &dedup.TxEndedError{Unrun: []int{1}}
	for name, c := range map[string]struct {
		err   error
		group bool
		unrun []int
		text  string
	}{
		"a single event":             {failed, false, nil, "s: handler ended the transaction: on purpose"},
		"a single event, Rollback":   {owned, false, nil, owned.Error()},
		"a group":                    {&dedup.GroupError{Unrun: []int{1, 2}, Err: failed}, true, []int{1, 2}, "s: handler ended the transaction; 2 events of the transaction had not run: on purpose"},
		"a group, Rollback":          {&dedup.GroupError{Unrun: []int{2}, Err: owned}, true, []int{2}, "s: handler ended the transaction; 1 events of the transaction had not run: " + owned.Error()},
		"a group that knows its end": {fmt.Errorf("event 0: %w", ended), true, []int{1}, "event 0: " + ended.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.group, decision.OfGroup(c.err))
			err := decision.EndedBySQL("s", c.err)
			require.ErrorIs(t, err, dedup.ErrTxEnded)
			require.ErrorIs(t, err, c.err)
			require.EqualError(t, err, c.text)
			found, _ := errors.AsType[*dedup.TxEndedError](err)
			if c.unrun == nil {
				require.Nil(t, found)
				return
			}
			require.Equal(t, c.unrun, found.Unrun)
		})
	}
}

// Rule 12: events in doubt are told by class. Only a store without an answer is unavailable.
func TestInDoubt_Rule12(t *testing.T) {
	t.Parallel()
	failed, why := &dedup.GroupError{Unrun: []int{1}, Err: errors.New("lost")}, errors.New("locked")
	err := decision.NotRuledOut(failed, why)
	require.EqualError(t, err, "lost; a COMMIT as SQL before is not ruled out, and events that never ran may "+
		"count as handled: locked")
	require.ErrorIs(t, err, dedup.ErrClaimsInDoubt)
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, why)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)

	for _, all := range []error{&dedup.GroupError{Err: errors.New("lost")}, errors.New("lost"),
		&dedup.TxEndedError{}} {
		err = decision.NotRuledOut(all, why)
		require.EqualError(t, err, all.Error()+"; a COMMIT as SQL before is not ruled out: locked")
		require.NotErrorIs(t, err, dedup.ErrClaimsInDoubt, "all events ran")
		require.ErrorIs(t, err, all)
		require.ErrorIs(t, err, why)
	}

	err = decision.NotTakenBack(failed, why)
	require.EqualError(t, err, "lost; events that never ran may count as handled: locked (store unavailable)")
	require.ErrorIs(t, err, dedup.ErrClaimsInDoubt)
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
}
