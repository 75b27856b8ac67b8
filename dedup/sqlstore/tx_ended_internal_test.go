package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// Rule 12: a COMMIT as SQL is found behind a lost connection, also if another worker locks the rows
// for longer than the store waits, or a look fails.
func TestLookForACommit_Rule12(t *testing.T) {
	fault := errors.New("on purpose")
	type answer struct {
		there bool
		err   error // context.DeadlineExceeded: no answer until the context ends
	}
	silent := answer{err: context.DeadlineExceeded}
	none, row, failed := answer{}, answer{there: true}, answer{err: fault}
	for name, c := range map[string]struct {
		calls []answer // of look, settle and look
		there bool
		err   error
		took  time.Duration
	}{
		"a row":                              {[]answer{row}, true, nil, 0},
		"a row after the end":                {[]answer{none, row}, true, nil, 0},
		"no row":                             {[]answer{none, none}, false, nil, 0},
		"a look that fails, and a row":       {[]answer{failed, row}, true, nil, 0},
		"a look that fails, and no row":      {[]answer{failed, none}, false, nil, 0},
		"a look without an answer":           {[]answer{silent, none}, false, nil, lookTime},
		"a locked row that is visible later": {[]answer{none, silent, row}, true, nil, lookBackTime},
		"a locked row of another worker": {
			[]answer{none, silent, none}, false, errUndecided, lookBackTime,
		},
		"a wait that fails":     {[]answer{none, failed, none}, false, errUndecided, 0},
		"a server that is down": {[]answer{failed, failed, failed}, false, fault, 0},
		"a server that is silent": {
			[]answer{silent, silent, silent}, false, context.DeadlineExceeded,
			lookTime + lookBackTime + lookTime,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made := 0
				call := func(settles bool) func(context.Context) (bool, error) {
					return func(ctx context.Context) (bool, error) {
						require.Less(t, made, len(c.calls), "one call more")
						require.Equal(t, settles, made == 1)
						a := c.calls[made]
						made++
						if a == silent {
							<-ctx.Done()
						}
						return a.there, a.err
					}
				}
				began := time.Now()
				there, err := lookAndSettle(t.Context(), call(false), call(true))
				require.Equal(t, c.there, there)
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.took, time.Since(began))
				require.Equal(t, len(c.calls), made)
			})
		})
	}
}

// Rule 12: if the database cannot tell how the transaction of an abandoned handler ended, the error
// says so.
func TestAbandonedWithoutAnAnswer_Rule12(t *testing.T) {
	d := silentDialect()
	d.Param = func(int) string { return "?" }
	d.Micros = func(column string) string { return column }
	db := sql.OpenDB(newLoan(t.Context(), &mortalConn{lost: true}, d))
	defer db.Close()
	r := &txRun{
		s: New(db, nil, d), reqs: make([]dedup.Request, 2),
		held: map[int]*decision.Record{0: {}, 1: {}},
	}
	ended := &dedup.TxEndedError{Unrun: []int{1}}
	err := r.takeBackLate(t.Context(), ended, errors.Join(dedup.ErrAbandoned, ended))
	require.ErrorIs(t, err, dedup.ErrAbandoned)
	require.ErrorIs(t, err, ended)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorContains(t, err, "events that never ran may count as handled")
	require.ErrorContains(t, err, "look for a COMMIT")

	err = inDoubt(errors.Join(dedup.ErrAbandoned, ended), errUndecided)
	require.ErrorIs(t, err, dedup.ErrAbandoned)
	require.ErrorIs(t, err, ended)
	require.NotErrorIs(t, err, dedup.ErrUnavailable, "the database has answered")
	require.ErrorContains(t, err, "a COMMIT as SQL before is not ruled out: another transaction")
}
