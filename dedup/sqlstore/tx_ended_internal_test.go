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
// for longer than the store waits, a look fails, or the database restarts.
func TestLookForACommit_Rule12(t *testing.T) {
	t.Parallel()
	fault := errors.New("on purpose")
	type answer struct {
		there bool
		err   error // context.DeadlineExceeded: no answer until the context ends
	}
	silent := answer{err: context.DeadlineExceeded}
	none, row, failed := answer{}, answer{there: true}, answer{err: fault}
	type answers func(since time.Duration) answer
	always := func(a answer) answers { return func(time.Duration) answer { return a } }
	until := func(end time.Duration, a, then answer) answers {
		return func(since time.Duration) answer {
			if since < end {
				return a
			}
			return then
		}
	}
	for name, c := range map[string]struct {
		look, settle answers
		there        bool
		err          error
		took         time.Duration
	}{
		"a row":                         {always(row), nil, true, nil, 0},
		"a row after the end":           {always(none), always(row), true, nil, 0},
		"no row":                        {always(none), always(none), false, nil, 0},
		"a look that fails, and a row":  {always(failed), always(row), true, nil, 0},
		"a look that fails, and no row": {always(failed), always(none), false, nil, 0},
		"a look without an answer":      {always(silent), always(none), false, nil, lookTime},
		"a locked row that is visible at the end": {
			until(lookBackTime, none, row), always(silent), true, nil, lookBackTime,
		},
		"a locked row of another worker": {
			always(none), always(silent), false, errUndecided, lookBackTime,
		},
		"a row that cannot be written": {
			always(none), always(failed), false, errUndecided, lookBackTime,
		},
		"a restart before the COMMIT": {
			until(time.Second, failed, none), until(time.Second, failed, none), false, nil,
			time.Second,
		},
		"a restart after the COMMIT": {
			until(time.Second, failed, row), always(failed), true, nil, time.Second,
		},
		"a server that is down": {always(failed), always(failed), false, fault, lookBackTime},
		"a server that is silent": {
			always(silent), always(silent), false, context.DeadlineExceeded,
			lookBackTime + lookTime,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, looked := time.Now(), false
				call := func(from answers, looks bool) func(context.Context) (bool, error) {
					return func(ctx context.Context) (bool, error) {
						require.True(t, looks || looked, "the look comes first")
						looked = true
						a := from(time.Since(began))
						if a == silent {
							<-ctx.Done()
						}
						return a.there, a.err
					}
				}
				there, err := lookAndSettle(t.Context(), call(c.look, true), call(c.settle, false))
				require.Equal(t, c.there, there)
				require.ErrorIs(t, err, c.err)
				took := time.Since(began)
				require.GreaterOrEqual(t, took, c.took)
				require.LessOrEqual(t, took, c.took+lookTime/2)
				if errors.Is(err, errUndecided) {
					require.NotErrorIs(t, err, fault)
					require.ErrorContains(t, err, c.settle(took).err.Error(), "the reason is named")
				}
			})
		})
	}
}

// Rule 12: if the database cannot tell how the transaction of a group ended, the error says so.
func TestLookWithoutAnAnswer_Rule12(t *testing.T) {
	t.Parallel()
	ended := &dedup.TxEndedError{Unrun: []int{1}}
	abandoned := &dedup.GroupError{Unrun: []int{1}, Err: dedup.ErrAbandoned}
	for name, c := range map[string]struct {
		err   error
		looks bool
	}{
		"a handler that is abandoned":     {abandoned, true},
		"a handler that knows the end":    {errors.Join(errors.New("lost"), ErrTxOwned, ended), true},
		"a single event":                  {errors.Join(errors.New("lost"), ErrTxOwned), false},
		"a single event, still executing": {dedup.ErrAbandoned, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := silentDialect()
				d.Param = func(int) string { return "?" }
				d.Micros = func(column string) string { return column }
				db := sql.OpenDB(newLoan(t.Context(), &mortalConn{lost: true}, d))
				defer db.Close()
				r := &txRun{
					s: New(db, nil, d), reqs: make([]dedup.Request, 2),
					held: map[int]*decision.Record{0: {}, 1: {}},
				}
				err := r.lookBack(t.Context(), c.err)
				require.ErrorIs(t, err, c.err)
				if !c.looks {
					require.Equal(t, c.err, err)
					return
				}
				require.ErrorIs(t, err, dedup.ErrUnavailable)
				require.ErrorIs(t, err, dedup.ErrClaimsInDoubt)
				require.ErrorContains(t, err, "a COMMIT as SQL before is not ruled out")
				require.ErrorContains(t, err, "look for a COMMIT")
			})
		})
	}
}
