package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errHandler = errors.New("the handler's own error")

// claimOne runs fn for one event and returns its verdict.
func claimOne(ctx context.Context, s *pgstore.Store, r dedup.Request,
	fn func(pgx.Tx) ([]dedup.Completion, error)) (dedup.Verdict, error) {
	var a [1]dedup.Answer
	err := s.ClaimTx(ctx, time.Minute, []dedup.Request{r}, a[:], fn)
	return a[0].Verdict, err
}

// effect returns a handler that writes one effect.
func effect(ctx context.Context, name string) func(pgx.Tx) ([]dedup.Completion, error) {
	return func(tx pgx.Tx) ([]dedup.Completion, error) { return nil, addEffect(ctx, tx, name) }
}

func never(t testing.TB) func(pgx.Tx) ([]dedup.Completion, error) {
	return func(pgx.Tx) ([]dedup.Completion, error) {
		t.Error("the handler ran")
		return nil, nil
	}
}

// healthy requires the pool to be whole and its connections to be usable.
func healthy(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 10*time.Second, 5*time.Millisecond,
		"connections were not returned")
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		defer conn.Release()
		require.Equal(t, byte('I'), conn.Conn().PgConn().TxStatus())
		_, err = conn.Exec(context.WithoutCancel(t.Context()), "SELECT 1")
		require.NoError(t, err)
	}
}

// P-01: two workers get the same events, in transactions of 50 ms. Each event has one effect, with
// either worker first.
func TestClaimTxTwoWorkersOneEffect_P01(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	const n = 20
	verdicts := make([][2]dedup.Verdict, n)
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range n {
				v, err := claimOne(t.Context(), s, request(fmt.Sprint(i)), func(tx pgx.Tx) ([]dedup.Completion, error) {
					_, err := tx.Exec(t.Context(), "INSERT INTO effects SELECT $1 FROM pg_sleep(0.05)", fmt.Sprint(i))
					return nil, err
				})
				if err != nil {
					t.Error(err)
				}
				verdicts[i][w] = v
			}
		})
	}
	wg.Wait()
	for i, v := range verdicts {
		require.ElementsMatch(t, []dedup.Verdict{dedup.Fresh, dedup.Done}, v[:], "event %d", i)
		require.Equal(t, 1, countEffects(t, pool, fmt.Sprint(i)))
	}
}

// P-02: in a database with the default SERIALIZABLE, the level is READ COMMITTED all the same, for
// claims and for handlers.
func TestIsolationLevelIsSaid_P02(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, param("default_transaction_isolation", "serializable"))
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		var level string
		err := tx.QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&level)
		require.Equal(t, "read committed", level)
		return nil, err
	})
	require.NoError(t, err)
	raceForOne(t, s)
}

// raceForOne lets many ask for one key at once: exactly one is Fresh.
func raceForOne(t *testing.T, s *pgstore.Store) {
	t.Helper()
	var fresh atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			v, err := claimOne(t.Context(), s, request("race"), plain)
			if err != nil || v != dedup.Fresh && v != dedup.Done {
				t.Errorf("%v, %v", v, err)
			}
			if v == dedup.Fresh {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, fresh.Load())
}

// P-12: a handler that swallows a database error has an aborted transaction. It must not pass for a success.
func TestSwallowedErrorIsAFailure_P12(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		require.NoError(t, addEffect(t.Context(), tx, "e"))
		_, err := tx.Exec(t.Context(), "SELECT 1/0")
		require.Error(t, err)
		return nil, nil
	})
	require.ErrorContains(t, err, "ignored an error")
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.Zero(t, countEffects(t, pool, "e"))
	v, err := claimOne(t.Context(), s, request("e"), effect(t.Context(), "e"))
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
	healthy(t, pool)
}

func TestOpenRowsAreAnError(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		_, err := tx.Query(t.Context(), "SELECT generate_series(1, 100000)") //nolint:gocritic,sqlclosecheck // left open on purpose
		return nil, err
	})
	require.ErrorContains(t, err, "left a result open")
	healthy(t, pool)
	v, err := claimOne(t.Context(), s, request("e"), plain)
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
}

// P-13: a handler cannot end the transaction through tx, and is caught if it does so by SQL.
func TestHandlerCannotEndTheTransaction_P13(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	v, err := claimOne(t.Context(), s, request("methods"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		for _, end := range []func(context.Context) error{tx.Commit, tx.Rollback} {
			err := end(t.Context())
			require.ErrorIs(t, err, pgstore.ErrTxOwned)
			require.ErrorIs(t, err, dedup.ErrTxEnded)
		}
		return nil, addEffect(t.Context(), tx, "methods")
	})
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
	require.Equal(t, 1, countEffects(t, pool, "methods"))
	for _, sql := range []string{"COMMIT", "ROLLBACK", "END", "ROLLBACK; BEGIN", "COMMIT; BEGIN", "COMMIT AND CHAIN"} {
		_, err := claimOne(t.Context(), s, request(sql), func(tx pgx.Tx) ([]dedup.Completion, error) {
			_, err := tx.Exec(t.Context(), sql)
			return nil, err
		})
		require.ErrorIs(t, err, dedup.ErrTxEnded, sql)
		healthy(t, pool)
	}
}

func TestHandlerMayUseSavepoints(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		require.NoError(t, pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return addEffect(t.Context(), tx, "kept") }))
		require.ErrorIs(t, errHandler, pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
			require.NoError(t, addEffect(t.Context(), tx, "undone"))
			return errHandler
		}))
		return nil, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, countEffects(t, pool, "kept"))
	require.Zero(t, countEffects(t, pool, "undone"))
}

// The transaction is of no use after the handler: another call may have its connection by then.
func TestTxIsClosedAfterTheHandler(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	var kept pgx.Tx
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		kept = tx
		return nil, nil
	})
	require.NoError(t, err)
	ctx := t.Context()
	_, err = kept.Exec(ctx, "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	rows, err := kept.Query(ctx, "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = pgx.CollectRows(rows, pgx.RowTo[int])
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.ErrorIs(t, kept.QueryRow(ctx, "SELECT 1").Scan(nil), pgx.ErrTxClosed)
	_, err = kept.Begin(ctx)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = kept.Prepare(ctx, "p", "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = kept.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"}, pgx.CopyFromRows(nil))
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.ErrorIs(t, kept.SendBatch(ctx, &pgx.Batch{}).Close(), pgx.ErrTxClosed)
	objects := kept.LargeObjects()
	_, err = objects.Create(ctx, 0)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	healthy(t, pool)
}

func TestHandlersErrorIsReturnedAsItIs(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		return nil, errors.Join(addEffect(t.Context(), tx, "e"), errHandler)
	})
	require.ErrorIs(t, err, errHandler)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.Zero(t, countEffects(t, pool, "e"))
	for name, sql := range map[string]string{ // a faulty statement is the handler's fault
		"22012": "SELECT 1/0", "57014": "SELECT pg_sleep(60)", "42P01": "SELECT * FROM missing", "55P03": "",
	} {
		_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
			if name == "55P03" { // of another database, say
				return nil, &pgconn.PgError{Code: name}
			}
			_, err := tx.Exec(t.Context(), "SET LOCAL statement_timeout = 200")
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), sql)
			return nil, err
		})
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Equal(t, name, pg.Code)
		require.NotErrorIs(t, err, dedup.ErrUnavailable, name)
		require.NotErrorIs(t, err, dedup.ErrContended, name)
	}
	healthy(t, pool)
}

func TestPanicAndGoexitRollBack(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, maxConns(2))
	for range 5 {
		require.PanicsWithValue(t, "boom", func() {
			_, _ = claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
				require.NoError(t, addEffect(t.Context(), tx, "e"))
				panic("boom")
			})
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
				_ = addEffect(t.Context(), tx, "e")
				runtime.Goexit()
				return nil, nil
			})
		})
		wg.Wait()
	}
	require.Zero(t, countEffects(t, pool, "e"))
	healthy(t, pool)
	v, err := claimOne(t.Context(), s, request("e"), plain)
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
}

// An abandoned handler goes on using its transaction in another goroutine, which the race detector
// watches. Its key is free at once, its connection is gone, and its later effects are not kept.
func TestAbandonedHandlerLosesItsConnection_K07(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"INSERT INTO effects VALUES ('late')", "SELECT pg_sleep(30)"} {
		s, pool := newStore(t, maxConns(2))
		stop, left := make(chan struct{}), make(chan error, 1)
		running := make(chan struct{})
		began := time.Now()
		_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
			go func() {
				close(running)
				var err error
				for err == nil {
					_, err = tx.Exec(context.Background(), sql)
				}
				<-stop
				_, again := tx.Exec(context.Background(), sql)
				left <- again
			}()
			<-running
			return nil, fmt.Errorf("timed out: %w", dedup.ErrAbandoned)
		})
		require.ErrorIs(t, err, dedup.ErrAbandoned)
		require.Less(t, time.Since(began), 5*time.Second)
		v, err := claimOne(t.Context(), s, request("e"), effect(t.Context(), "next"))
		require.NoError(t, err)
		if v == dedup.Busy { // its statement was running: the server looks every two seconds whether the client is there
			v, err = claimOne(t.Context(), s, request("e"), effect(t.Context(), "next"))
			require.NoError(t, err)
		}
		require.Equal(t, dedup.Fresh, v)
		close(stop)
		require.ErrorIs(t, <-left, pgx.ErrTxClosed)
		require.Zero(t, countEffects(t, pool, "late"))
		healthy(t, pool)
	}
}

// Serialization failures and deadlocks of a single event are the store's to repeat, with the handler, a few times.
func TestSingleEventRunsAgainAfterSerializationFailure(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		s, pool := newStore(t)
		runs := 0
		handler := func(fail int) func(tx pgx.Tx) ([]dedup.Completion, error) {
			runs = 0
			return func(tx pgx.Tx) ([]dedup.Completion, error) {
				if runs++; runs > fail {
					return nil, addEffect(t.Context(), tx, "e")
				}
				_, err := tx.Exec(t.Context(), "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '"+code+"'; END $$")
				return nil, fmt.Errorf("wrapped: %w", err)
			}
		}
		v, err := claimOne(t.Context(), s, request("e"), handler(2))
		require.NoError(t, err)
		require.Equal(t, dedup.Fresh, v)
		require.Equal(t, 3, runs)
		require.Equal(t, 1, countEffects(t, pool, "e"))

		_, err = claimOne(t.Context(), s, request("again"), handler(100))
		require.Error(t, err)
		require.Equal(t, 3, runs, "bounded")

		answers := make([]dedup.Answer, 2)
		handle := handler(100)
		err = s.ClaimTx(t.Context(), time.Minute, batch(2, 0), answers, handle)
		require.ErrorIs(t, err, dedup.ErrContended)
		require.Equal(t, 1, runs, "a group is never run again (rule 1)")

		handle = func(pgx.Tx) ([]dedup.Completion, error) {
			runs++
			return nil, &pgconn.PgError{Code: code} // of another database: this transaction is whole
		}
		runs = 0
		_, err = claimOne(t.Context(), s, request("other"), handle)
		require.Error(t, err)
		require.Equal(t, 1, runs)
	}
}

// Errors that appear at COMMIT belong to the handler, and are no unknown outcome.
func TestDeferredConstraintFailsAtCommit(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := pool.Exec(t.Context(), "CREATE TABLE d (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	require.NoError(t, err)
	_, err = claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		_, err := tx.Exec(t.Context(), "INSERT INTO d VALUES (1), (1)")
		return nil, err
	})
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, "23505", pg.Code)
	require.NotErrorIs(t, err, dedup.ErrUnknownCommit)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	v, err := claimOne(t.Context(), s, request("e"), plain)
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
	healthy(t, pool)
}

func TestCompletionsAreStoredWithTheEffects(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	reqs := batch(5, 0)
	answers := make([]dedup.Answer, len(reqs))
	held := func(i int) dedup.Completion {
		return dedup.Completion{Claim: reqs[i].Held(dedup.Token{}, answers[i]), Retention: retention}
	}
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, func(pgx.Tx) ([]dedup.Completion, error) {
		dead, moved, result, done := held(0), held(1), held(2), held(3)
		dead.Dead = "poison\x00"
		moved.Retry = 2
		result.Result = dedup.Result{Schema: 7, Data: []byte{0, 1, 255}}
		return []dedup.Completion{dead, moved, result, done}, nil
	}))
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, never(t)))
	require.Equal(t, dedup.Dead, answers[0].Verdict)
	require.Equal(t, "poison\uFFFD", answers[0].Reason)
	require.Equal(t, dedup.Rescheduled, answers[1].Verdict)
	require.Equal(t, dedup.Done, answers[2].Verdict)
	require.Equal(t, dedup.Result{Schema: 7, Data: []byte{0, 1, 255}}, answers[2].Result)
	require.Equal(t, dedup.Done, answers[3].Verdict)
	require.Equal(t, dedup.Done, answers[4].Verdict)
	require.True(t, answers[4].Result.IsZero())
	require.Equal(t, reqs[4].Origin.Offset, answers[4].First.Offset)
	require.True(t, reqs[4].Origin.Time.Equal(answers[4].First.Time))

	reqs[1].Position.Retry = 2
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, plain))
	require.Equal(t, dedup.Fresh, answers[1].Verdict, "the attempt it waited for")
	require.EqualValues(t, 2, answers[1].Fence)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, never(t)))
	require.Equal(t, dedup.Done, answers[1].Verdict)

	p, err := s.Reopen(t.Context(), reqs[0].Key)
	require.NoError(t, err)
	require.Equal(t, dedup.Position{Generation: 1}, p)
	v, err := claimOne(t.Context(), s, reqs[0], never(t))
	require.NoError(t, err)
	require.Equal(t, dedup.Rescheduled, v)
	reqs[0].Position = p
	v, err = claimOne(t.Context(), s, reqs[0], effect(t.Context(), "redriven"))
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
	require.Equal(t, 1, countEffects(t, pool, "redriven"))
}

// A completion of another key is a mistake, and the transaction is not committed.
func TestCompletionMustBeHeld(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		other := request("other")
		return []dedup.Completion{{Claim: other.Held(dedup.Token{}, dedup.Answer{}), Retention: retention}},
			addEffect(t.Context(), tx, "e")
	})
	require.ErrorContains(t, err, "not held")
	require.Zero(t, countEffects(t, pool, "e"))
	healthy(t, pool)
}

// The handler's session is the one it would have without the store, but for the time-out that is its lease.
func TestHandlerGetsItsOwnSettings(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, param("lock_timeout", "1234"), param("statement_timeout", "4321"), param("enable_hashjoin", "off"))
	show := func(tx pgx.Tx, name string) (v string) {
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&v))
		return v
	}
	for n, lock := range map[int]string{1: "1234ms", 3: "20ms"} {
		answers := make([]dedup.Answer, n)
		handler := func(tx pgx.Tx) ([]dedup.Completion, error) {
			require.Equal(t, lock, show(tx, "lock_timeout"))
			require.Equal(t, "4321ms", show(tx, "statement_timeout"))
			require.Equal(t, "15s", show(tx, "idle_in_transaction_session_timeout"))
			require.Equal(t, []string{"on", "off", "on"},
				[]string{show(tx, "enable_seqscan"), show(tx, "enable_hashjoin"), show(tx, "enable_mergejoin")})
			return nil, nil
		}
		require.NoError(t, s.ClaimTx(t.Context(), 10*time.Second, batch(n, n), answers, handler))
	}
}

// P-15: a handler that keeps its transaction idle for too long loses it, and the pool stays whole.
func TestIdleHandlerIsEnded_P15(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		_, err := tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 100")
		require.NoError(t, err)
		waitForBackend(t, pool, tx.Conn().PgConn().PID(), 0)
		return nil, addEffect(t.Context(), tx, "e")
	})
	require.Error(t, err)
	require.Zero(t, countEffects(t, pool, "e"))
	healthy(t, pool)
}

// waitForBackend waits until n sessions have this process ID: 0 or 1.
func waitForBackend(t testing.TB, pool *pgxpool.Pool, pid uint32, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		got := -1
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&got)
		return err == nil && got == n
	}, 20*time.Second, 10*time.Millisecond)
}

func TestDuplicatesRunNothing(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	reqs := batch(50, 0)
	answers := make([]dedup.Answer, len(reqs))
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs[10:20], answers[:10], plain))
	calls := 0
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, func(pgx.Tx) ([]dedup.Completion, error) {
		calls++
		for i, a := range answers {
			want := dedup.Fresh
			if i >= 10 && i < 20 {
				want = dedup.Done
			}
			require.Equal(t, want, a.Verdict, "%d: the answers are there while the handler runs", i)
		}
		return nil, nil
	}))
	require.Equal(t, 1, calls)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, never(t)))
	require.False(t, slices.ContainsFunc(answers, func(a dedup.Answer) bool { return a.Verdict != dedup.Done }))
}

// P-03: a handler locks the row that decides. It then sees the commit of another transaction
// meanwhile, although the session's default is SERIALIZABLE.
func TestRowLockGuardsReadThenWrite_P03(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, param("default_transaction_isolation", "serializable"))
	_, err := pool.Exec(t.Context(), "CREATE TABLE stock AS SELECT 1 AS id, 10 AS amount")
	require.NoError(t, err)
	other, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "UPDATE stock SET amount = 3")
	require.NoError(t, err)
	_, err = claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		committed := make(chan error, 1)
		go func() {
			waitForLock(t, pool, tx.Conn().PgConn().PID())
			committed <- other.Commit(t.Context())
		}()
		var amount int
		err := tx.QueryRow(t.Context(), "SELECT amount FROM stock WHERE id = 1 FOR UPDATE").Scan(&amount)
		require.NoError(t, err)
		require.NoError(t, <-committed)
		require.Equal(t, 3, amount)
		return nil, nil
	})
	require.NoError(t, err)
}

// waitForLock waits until a session waits for a lock.
func waitForLock(t testing.TB, pool *pgxpool.Pool, pid uint32) {
	t.Helper()
	assert.Eventually(t, func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1", pid).Scan(&waits)
		return err == nil && waits
	}, 20*time.Second, 10*time.Millisecond)
}

// Rule 24: a claim that has waited for another session's row grants its lease from the end of that wait, not from the
// beginning of its transaction.
func TestLeaseBeginsAfterTheWait_Rule24(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	const lease = time.Minute
	claim := func() error {
		return s.Claim(t.Context(), dedup.NewToken(), lease, []dedup.Request{request("e")}, make([]dedup.Answer, 1))
	}
	require.NoError(t, claim())
	_, err := pool.Exec(t.Context(), "UPDATE idempotency_keys SET lease_until = clock_timestamp() - interval '1 s'")
	require.NoError(t, err)
	other, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }() // also after a failure
	_, err = other.Exec(t.Context(), "SELECT FROM idempotency_keys FOR UPDATE")
	require.NoError(t, err)
	claimed := make(chan error, 1)
	go func() { claimed <- claim() }()
	waitForWaiting(t, pool, "idempotency_keys", 1)
	var released, until time.Time // by the server's clock
	require.NoError(t, other.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&released))
	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, <-claimed)
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT lease_until FROM idempotency_keys").Scan(&until))
	require.GreaterOrEqual(t, until.Sub(released), lease)
}
