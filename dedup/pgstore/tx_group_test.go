package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// runGroup runs a group as the gate does: after each handler it looks at the transaction, without a round trip, and
// blames that handler (rule 12).
func runGroup(t testing.TB, s *pgstore.Store, reqs []dedup.Request, handler func(tx pgx.Tx, i int) error) error {
	t.Helper()
	answers := make([]dedup.Answer, len(reqs))
	return s.ClaimTx(t.Context(), time.Minute, reqs, answers, func(tx pgx.Tx) ([]dedup.Completion, error) {
		for i := range reqs {
			if err := handler(tx, i); err != nil {
				return nil, err
			}
			switch err := tx.(dedup.TxChecker).CheckTx(); {
			case errors.Is(err, dedup.ErrTxEnded):
				ended := &dedup.TxEndedError{}
				for j := i + 1; j < len(reqs); j++ {
					ended.Unrun = append(ended.Unrun, j)
				}
				return nil, fmt.Errorf("event %d: %w", i, ended)
			case err != nil:
				return nil, fmt.Errorf("event %d: %w", i, err)
			}
		}
		return nil, nil
	})
}

// groupOf4 runs four events of which the second one executes sql.
func groupOf4(t *testing.T, s *pgstore.Store, sql string) error {
	t.Helper()
	return runGroup(t, s, batch(4, 0), func(tx pgx.Tx, i int) error {
		if err := addEffect(t.Context(), tx, fmt.Sprint(i)); err != nil {
			return err
		}
		if i == 1 {
			_, _ = tx.Exec(t.Context(), sql) // and ignores the result
		}
		return nil
	})
}

// verdicts4 asks for each of the four again.
func verdicts4(t *testing.T, s *pgstore.Store) (got [4]dedup.Verdict) {
	t.Helper()
	for i, r := range batch(4, 0) {
		v, err := claimOne(t.Context(), s, r, effect(t.Context(), fmt.Sprint(i)))
		require.NoError(t, err)
		got[i] = v
	}
	return got
}

// Rule 12: event 2 of 4 executes COMMIT. The events that ran are handled, the others are not, and
// each takes effect once.
func TestCommitInAGroup_Rule12(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"COMMIT", "COMMIT; BEGIN", "COMMIT AND CHAIN", "COMMIT; BEGIN; SELECT 1"} {
		s, pool := newStore(t, maxConns(1))
		err := groupOf4(t, s, sql)
		require.ErrorIs(t, err, dedup.ErrTxEnded, sql)
		require.ErrorContains(t, err, "event 1")
		require.NotErrorIs(t, err, dedup.ErrUnavailable)
		var rows int
		require.NoError(t, pool.QueryRow(t.Context(),
			"SELECT count(*) FROM processed_events WHERE status = 'done'").Scan(&rows))
		require.Equal(t, 2, rows, sql)
		require.Equal(t, [4]dedup.Verdict{dedup.Done, dedup.Done, dedup.Fresh, dedup.Fresh}, verdicts4(t, s), sql)
		require.Equal(t, [4]dedup.Verdict{dedup.Done, dedup.Done, dedup.Done, dedup.Done}, verdicts4(t, s), sql)
		for i := range 4 {
			require.Equal(t, 1, countEffects(t, pool, fmt.Sprint(i)), "%s: effects of event %d", sql, i)
		}
		healthy(t, pool)
	}
}

// Rule 12: after ROLLBACK there is no claim to take back.
func TestRollbackInAGroup_Rule12(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"ROLLBACK", "ROLLBACK AND CHAIN"} {
		s, pool := newStore(t)
		err := groupOf4(t, s, sql)
		require.ErrorIs(t, err, dedup.ErrTxEnded, sql)
		require.Equal(t, [4]dedup.Verdict{dedup.Fresh, dedup.Fresh, dedup.Fresh, dedup.Fresh}, verdicts4(t, s), sql)
		healthy(t, pool)
	}
}

// Rule 12: a claim on a row that waited for this attempt is taken back as well: it waits again, with its history.
func TestCommitInAGroupOfLaterAttempts_Rule12(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	reqs := batch(3, 0)
	move := func(retry uint32) func(pgx.Tx) ([]dedup.Completion, error) {
		return func(pgx.Tx) ([]dedup.Completion, error) {
			return []dedup.Completion{{Claim: reqs[2].Held(dedup.Token{}, dedup.Answer{}), Retention: retention, Retry: retry}}, nil
		}
	}
	_, err := claimOne(t.Context(), s, reqs[2], move(1))
	require.NoError(t, err)
	reqs[1].Position.Retry, reqs[2].Position.Retry = 3, 1
	err = runGroup(t, s, reqs, func(tx pgx.Tx, _ int) error {
		_, err := tx.Exec(t.Context(), "COMMIT")
		return err
	})
	require.ErrorIs(t, err, dedup.ErrTxEnded)
	overtaken := reqs[2]
	overtaken.Position.Retry = 0
	v, err := claimOne(t.Context(), s, overtaken, never(t))
	require.NoError(t, err)
	require.Equal(t, dedup.Rescheduled, v)
	for _, r := range reqs[1:] {
		v, err = claimOne(t.Context(), s, r, plain)
		require.NoError(t, err)
		require.Equal(t, dedup.Fresh, v)
	}
}

// Rule 12: a row that another worker wrote since is not touched.
func TestTakingBackLeavesOthersAlone_Rule12(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	reqs := batch(2, 0)
	err := runGroup(t, s, reqs, func(tx pgx.Tx, _ int) error {
		_, err := tx.Exec(t.Context(), "COMMIT")
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), "UPDATE processed_events SET updated_at = now() WHERE event_id = $1", reqs[1].Key.ID)
		return err
	})
	require.ErrorIs(t, err, dedup.ErrTxEnded)
	v, err := claimOne(t.Context(), s, reqs[1], never(t))
	require.NoError(t, err)
	require.Equal(t, dedup.Done, v)
}

// Rule 12: if the claims could not be taken back, the error matches that of an outage.
func TestTakingBackFails_Rule12(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	err := runGroup(t, s, batch(2, 0), func(tx pgx.Tx, _ int) error {
		_, err := tx.Exec(t.Context(), "COMMIT")
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), "ALTER TABLE processed_events RENAME TO gone")
		return err
	})
	require.ErrorIs(t, err, dedup.ErrTxEnded)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorContains(t, err, "never ran")
	healthy(t, pool)
}

// Rule 12: an error that a handler swallows is found at that handler, and not at the next one by
// its failing statements.
func TestSwallowedErrorInAGroup_Rule12(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	err := groupOf4(t, s, "SELECT 1/0")
	require.ErrorIs(t, err, dedup.ErrTxAborted)
	require.ErrorContains(t, err, "event 1")
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.Equal(t, [4]dedup.Verdict{dedup.Fresh, dedup.Fresh, dedup.Fresh, dedup.Fresh}, verdicts4(t, s))
	healthy(t, pool)
}

// CheckTx returns the state of a transaction, also after its end.
func TestCheckTx_Rule12(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	var kept dedup.TxChecker
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		kept = tx.(dedup.TxChecker)
		require.NoError(t, kept.CheckTx())
		require.NoError(t, pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return addEffect(t.Context(), tx, "e") }))
		_, err := tx.Exec(t.Context(), "SAVEPOINT s; ROLLBACK TO SAVEPOINT s; RELEASE s")
		require.NoError(t, err)
		require.NoError(t, kept.CheckTx(), "savepoints are the handler's own")
		return nil, nil
	})
	require.NoError(t, err)
	require.ErrorIs(t, kept.CheckTx(), dedup.ErrTxEnded)
	require.ErrorIs(t, kept.CheckTx(), pgx.ErrTxClosed)

	_, err = claimOne(t.Context(), s, request("f"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		require.NoError(t, tx.Conn().Close(context.WithoutCancel(t.Context())))
		return nil, tx.(dedup.TxChecker).CheckTx()
	})
	require.ErrorIs(t, err, dedup.ErrUnavailable)

	_, err = claimOne(t.Context(), s, request("g"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		_ = handlerErr(t, tx, "COMMIT", leaves)
		return nil, tx.(dedup.TxChecker).CheckTx()
	})
	require.ErrorIs(t, err, dedup.ErrTxEnded)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	healthy(t, pool)
}

// Rules 25 and 26: some connections are left for calls outside the transactions of events.
func TestMaxTxLeavesConnections_Rule25(t *testing.T) {
	t.Parallel()
	for conns, want := range map[int32]int{1: 1, 2: 1, 3: 2, 4: 3, 8: 6, 16: 12, 100: 75} {
		s := pgstore.New(newPool(t, "postgres://nobody@127.0.0.1:1/nothing?sslmode=disable", maxConns(conns)))
		require.Equal(t, want, s.MaxTx(), "a pool of %d", conns)
	}
}
