// Package endtest is for tests of transactions that a handler has ended.
package endtest

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// Group runs fn as the handler of the first of three events. The error of fn is that of the second
// event. If fn has committed before, the first event is done, and the others are taken back.
// Otherwise the transaction is rolled back. The result is the error of ClaimTx.
func Group(t *testing.T, s dedup.TxStore[*sql.Tx], committed bool, fn func(*sql.Tx) error) error {
	t.Helper()
	err := claimGroup(t, s, committed, func(tx *sql.Tx) error {
		failed := fn(tx)
		require.Error(t, failed)
		return &dedup.GroupError{Unrun: []int{1, 2}, Err: failed}
	})
	requireAnswers(t, s, committed)
	return err
}

func groupRequests() (reqs []dedup.Request) {
	for _, id := range []string{"a", "b", "c"} {
		key := dedup.Key{Scope: "group", Type: "t", ID: id}
		reqs = append(reqs, dedup.Request{Key: key, Retention: time.Hour})
	}
	return reqs
}

// claimGroup is the first part of Group: fn has the error of the whole group.
func claimGroup(t *testing.T, s dedup.TxStore[*sql.Tx], committed bool, fn func(*sql.Tx) error) error {
	t.Helper()
	var failed error
	err := s.ClaimTx(t.Context(), time.Minute, groupRequests(), make([]dedup.Answer, 3),
		func(tx *sql.Tx) ([]dedup.Completion, error) {
			failed = fn(tx)
			return nil, failed
		})
	require.Error(t, failed)
	require.ErrorIs(t, err, failed)
	_, ended := errors.AsType[*dedup.TxEndedError](err)
	require.Equal(t, committed, ended, err)
	return err
}

// requireAnswers claims the events of a group one by one.
func requireAnswers(t *testing.T, s dedup.TxStore[*sql.Tx], committed bool) {
	t.Helper()
	reqs := groupRequests()
	for i := range reqs {
		answers := make([]dedup.Answer, 1)
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs[i:i+1], answers,
			func(*sql.Tx) ([]dedup.Completion, error) { return nil, nil }))
		want := dedup.Fresh
		if committed && i == 0 {
			want = dedup.Done
		}
		require.Equal(t, want.String(), answers[0].Verdict.String(), reqs[i].Key)
	}
}

// All executes statements. The last one fails, and its error is the result.
func All(t *testing.T, tx *sql.Tx, statements ...string) error {
	t.Helper()
	for i, text := range statements {
		_, err := tx.ExecContext(t.Context(), text)
		if i == len(statements)-1 {
			return err
		}
		require.NoError(t, err, text)
	}
	return nil
}

// Single runs statements as the handler of one event, which has an effect before. The handler
// commits, and its last statement fails. The error of ClaimTx has that failure and tells of the
// COMMIT, and the handler does not run again.
func Single(t *testing.T, s dedup.TxStore[*sql.Tx], statements ...string) {
	t.Helper()
	reqs := []dedup.Request{{Key: dedup.Key{Scope: "single", Type: "t", ID: "a"}, Retention: time.Hour}}
	answers := make([]dedup.Answer, 1)
	var failed error
	runs := 0
	err := s.ClaimTx(t.Context(), time.Minute, reqs, answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
		runs++
		failed = All(t, tx, statements...)
		return nil, failed
	})
	require.Error(t, failed)
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, dedup.ErrTxEnded)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.Equal(t, 1, runs)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers,
		func(*sql.Tx) ([]dedup.Completion, error) { return nil, nil }))
	require.Equal(t, dedup.Done.String(), answers[0].Verdict.String())
}

// Repeats runs a handler of one event, whose statement fails in the first run: the transaction is
// lost, and the handler runs again. The handler may have called Rollback after the failure.
func Repeats(t *testing.T, s dedup.TxStore[*sql.Tx], failure string) {
	t.Helper()
	for name, callsRollback := range map[string]bool{"returns": false, "rolls back": true} {
		reqs := []dedup.Request{{Key: dedup.Key{Scope: name, Type: "t", ID: "a"}, Retention: time.Hour}}
		answers := make([]dedup.Answer, 1)
		runs := 0
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers,
			func(tx *sql.Tx) ([]dedup.Completion, error) {
				if runs++; runs > 1 {
					return nil, nil
				}
				err := All(t, tx, failure)
				if callsRollback {
					_ = tx.Rollback()
				}
				return nil, err
			}), name)
		require.Equal(t, 2, runs, name)
		require.Equal(t, dedup.Fresh.String(), answers[0].Verdict.String(), name)
	}
}
