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
	var reqs []dedup.Request
	for _, id := range []string{"a", "b", "c"} {
		key := dedup.Key{Scope: "group", Type: "t", ID: id}
		reqs = append(reqs, dedup.Request{Key: key, Retention: time.Hour})
	}
	var failed error
	err := s.ClaimTx(t.Context(), time.Minute, reqs, make([]dedup.Answer, 3),
		func(tx *sql.Tx) ([]dedup.Completion, error) {
			failed = fn(tx)
			return nil, &dedup.GroupError{Unrun: []int{1, 2}, Err: failed}
		})
	require.Error(t, failed)
	require.ErrorIs(t, err, failed)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	_, ended := errors.AsType[*dedup.TxEndedError](err)
	require.Equal(t, committed, ended, err)
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
	return err
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
