package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// queue is work before commit: it counts its entries, and its Flush is the function of the test.
type queue struct {
	n     int
	flush func(context.Context, pgx.Tx) error
}

func (q *queue) Flush(ctx context.Context, tx any) error { return q.flush(ctx, tx.(pgx.Tx)) }
func (q *queue) Mark() int                               { return q.n }
func (q *queue) Rewind(mark int)                         { q.n = mark }

// keeps returns a handler that writes an effect and keeps work.
func keeps(ctx context.Context, flush func(context.Context, pgx.Tx) error) func(pgx.Tx) ([]dedup.Completion, error) {
	return func(tx pgx.Tx) ([]dedup.Completion, error) {
		w, err := tx.(dedup.TxKeeper).KeepTx("queue", func() dedup.TxWork { return &queue{flush: flush} })
		if err != nil {
			return nil, err
		}
		w.(*queue).n++
		return nil, addEffect(ctx, tx, "effect")
	}
}

func runs(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

// batched is as runs, in a batch.
func batched(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(sql)
		return tx.SendBatch(ctx, &b).Close()
	}
}

func raises(code string) func(context.Context, pgx.Tx) error {
	return runs("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '" + code + "'; END $$")
}

// group runs fn for two events.
func group(ctx context.Context, s *pgstore.Store, fn func(pgx.Tx) ([]dedup.Completion, error)) error {
	return s.ClaimTx(ctx, time.Minute, batch(2, 0), make([]dedup.Answer, 2), fn)
}

// foreignLock lets a session of another program hold an advisory lock until release is called. The
// number of the lock is random, because other test runs use the same database.
func foreignLock(t testing.TB, pool *pgxpool.Pool) (n int32, release func()) {
	t.Helper()
	n = rand.Int32()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	release = func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
	t.Cleanup(release)
	_, err = tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", n)
	require.NoError(t, err)
	return n, release
}

func lock(n int32) string { return fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", n) }

// Rules 10 and 22: another session holds a lock that the work before a commit needs, and does not
// go on. The store waits for two seconds. Then a single event is Busy, without an error, however it
// was about to end. A group is taken apart. No effect of them remains. As soon as the holder is
// gone they are handled.
func TestFlushMeetsAForeignLock_Rule22(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(string) func(context.Context, pgx.Tx) error{"exec": runs, "batch": batched} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t, param("lock_timeout", "0"), param("statement_timeout", "300"))
			n, release := foreignLock(t, pool)
			began := time.Now()
			v, err := claimOne(t.Context(), s, request("e"), keeps(t.Context(), take(lock(n))))
			require.NoError(t, err)
			require.Equal(t, dedup.Busy, v)
			require.ErrorIs(t, group(t.Context(), s, keeps(t.Context(), take(lock(n)))), dedup.ErrContended)
			err = s.RunTx(t.Context(), time.Minute, func(tx pgx.Tx) error {
				_, err := keeps(t.Context(), take(lock(n)))(tx)
				return err
			})
			require.ErrorIs(t, err, dedup.ErrContended, "there is no answer that could say Busy")
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
			require.Greater(t, time.Since(began), 5*time.Second, "patience")
			require.Less(t, time.Since(began), 15*time.Second)
			require.Zero(t, countEffects(t, pool, "effect"))
			release()
			v, err = claimOne(t.Context(), s, request("e"), keeps(t.Context(), take(lock(n))))
			require.NoError(t, err)
			require.Equal(t, dedup.Fresh, v)
			require.NoError(t, group(t.Context(), s, keeps(t.Context(), take(lock(n)))))
			require.Equal(t, 2, countEffects(t, pool, "effect"))
			healthy(t, pool)
		})
	}
}

// Rule 22: a group that meets another one at its last lock waits for its commit. The 20 ms that handlers have there would take both apart.
func TestFlushOfAGroupWaitsForACommit_Rule22(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	n, release := foreignLock(t, pool)
	done := make(chan error, 1)
	go func() { done <- group(t.Context(), s, keeps(t.Context(), batched(lock(n)))) }()
	require.Eventually(t, func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1::int8 AND NOT granted)", n).Scan(&waits)
		return err == nil && waits
	}, 5*time.Second, 5*time.Millisecond)
	var a bool // well beyond the 20 ms
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT true FROM pg_sleep(0.2)").Scan(&a))
	release()
	require.NoError(t, <-done)
	require.Equal(t, 1, countEffects(t, pool, "effect"))
}

// An error of the database before the commit has the meaning of an error in a handler, with two
// exceptions. A handler is never to blame for a lock. One event is not to blame for an error that
// only many together cause: the server's table of locks is full (53200), or the work took too long.
func TestFlushErrors(t *testing.T) {
	t.Parallel()
	other := func(context.Context, pgx.Tx) error { return &pgconn.PgError{Code: "55P03"} } // of another database
	swallows := func(ctx context.Context, tx pgx.Tx) error { _ = raises("23505")(ctx, tx); return nil }
	for name, c := range map[string]struct {
		flush      func(context.Context, pgx.Tx) error
		one, group error // the error that it matches; nil: no such error
		busy       bool
		code       string
	}{
		"constraint":           {flush: raises("23505"), code: "23505"},
		"swallowed":            {flush: swallows, one: dedup.ErrTxAborted, group: dedup.ErrTxAborted},
		"another database":     {flush: other, code: "55P03"},
		"not of a database":    {flush: func(context.Context, pgx.Tx) error { return errHandler }, one: errHandler, group: errHandler},
		"lock table is full":   {flush: raises("53200"), one: dedup.ErrUnavailable, group: dedup.ErrContended, code: "53200"},
		"too many connections": {flush: raises("53300"), one: dedup.ErrUnavailable, group: dedup.ErrUnavailable, code: "53300"},
		"statement took long":  {flush: raises("57014"), one: dedup.ErrUnavailable, group: dedup.ErrContended, code: "57014"},
		"deadlock":             {flush: raises("40P01"), busy: true, group: dedup.ErrContended},
		"serialization":        {flush: raises("40001"), busy: true, group: dedup.ErrContended},
		"wrapped": {flush: func(ctx context.Context, tx pgx.Tx) error {
			return fmt.Errorf("%w: %w", dedup.ErrUnavailable, raises("53200")(ctx, tx))
		}, one: dedup.ErrUnavailable, group: dedup.ErrContended, code: "53200"},
		"connection lost": {flush: runs("SELECT pg_terminate_backend(pg_backend_pid())"), one: dedup.ErrUnavailable, group: dedup.ErrUnavailable},
		"ended by COMMIT": {flush: runs("COMMIT; BEGIN"), one: dedup.ErrTxEnded, group: dedup.ErrTxEnded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t)
			v, one := claimOne(t.Context(), s, request("e"), keeps(t.Context(), c.flush))
			if c.busy {
				require.NoError(t, one)
				require.Equal(t, dedup.Busy, v)
			} else {
				meansOnly(t, one, c.one)
			}
			many := group(t.Context(), s, keeps(t.Context(), c.flush))
			meansOnly(t, many, c.group)
			if pg := (*pgconn.PgError)(nil); c.code != "" {
				require.ErrorAs(t, one, &pg)
				require.Equal(t, c.code, pg.Code)
				require.ErrorAs(t, many, &pg)
			}
			if !errors.Is(c.one, dedup.ErrTxEnded) {
				require.Zero(t, countEffects(t, pool, "effect"))
			}
			healthy(t, pool)
		})
	}
}

// meansOnly requires err to match want and no other error that the gate looks for.
func meansOnly(t testing.TB, err, want error) {
	t.Helper()
	require.Error(t, err)
	for _, e := range []error{dedup.ErrUnavailable, dedup.ErrContended, dedup.ErrTxEnded, dedup.ErrTxAborted, dedup.ErrUnknownCommit, errHandler} {
		require.Equal(t, e == want, errors.Is(err, e), "%v: %v", e, err) //nolint:errorlint // which of these it is
	}
}

// Rules 22 and 23: a single event runs again after a deadlock of its handler or of the work before
// its commit. The run begins without kept work, so only the work of one run is written.
func TestNothingIsKeptOfAnEarlierRun_Rule22(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		s, pool := newStore(t)
		ctx, run := t.Context(), 0
		handler := func(tx pgx.Tx) ([]dedup.Completion, error) {
			run++
			var q *queue
			w, err := tx.(dedup.TxKeeper).KeepTx("queue", func() dedup.TxWork {
				q = &queue{}
				q.flush = func(ctx context.Context, tx pgx.Tx) error {
					if run == 2 {
						return raises(code)(ctx, tx)
					}
					for range q.n {
						if err := addEffect(ctx, tx, "emitted"); err != nil {
							return err
						}
					}
					return nil
				}
				return q
			})
			require.NoError(t, err)
			w.(*queue).n++
			if run == 1 {
				return nil, raises(code)(ctx, tx)
			}
			return nil, nil
		}
		v, err := claimOne(ctx, s, request("e"), handler)
		require.NoError(t, err)
		require.Equal(t, dedup.Fresh, v)
		require.Equal(t, 3, run)
		require.Equal(t, 1, countEffects(t, pool, "emitted"))
	}
}

// Rule 20: the server falls silent during the work before the commit. The store gives up after a
// bounded time, also for callers with a context that never ends, and no event is to blame.
func TestFlushToASilentServer_Rule20(t *testing.T) {
	t.Parallel()
	var open atomic.Bool
	s, pool := newStore(t, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return hole{conn, &open}, err
		}
	})
	s.SetSilence(time.Second)
	began := time.Now()
	_, err := claimOne(context.WithoutCancel(t.Context()), s, request("e"), keeps(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		open.Store(true)
		return runs("SELECT 1")(ctx, tx)
	}))
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.NotErrorIs(t, err, dedup.ErrUnknownCommit)
	require.Less(t, time.Since(began), 8*time.Second)
	open.Store(false)
	s.SetSilence(time.Minute)
	v, err := claimOne(t.Context(), s, request("e"), plain)
	require.NoError(t, err)
	for v == dedup.Busy { // until the server has looked for its client
		v, err = claimOne(t.Context(), s, request("e"), plain)
		require.NoError(t, err)
	}
	require.Equal(t, dedup.Fresh, v)
	require.Zero(t, countEffects(t, pool, "effect"))
}

// A caller that does not wait any longer gets the error of its context.
func TestFlushIsCancelled_P16(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	_, err := claimOne(ctx, s, request("e"), keeps(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		time.AfterFunc(20*time.Millisecond, cancel)
		return runs("SELECT pg_sleep(30)")(ctx, tx)
	}))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.Less(t, time.Since(began), 10*time.Second)
	healthy(t, pool)
}

// P-13: a handler that ends its transaction loses the work that it has kept for the end, and gets
// an error.
func TestWhatIsKeptGoesWithATransactionThatWasEnded_P13(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	wrote := func(ctx context.Context, tx pgx.Tx) error { return addEffect(ctx, tx, "emitted") }
	for _, sql := range []string{"COMMIT", "ROLLBACK", "COMMIT; BEGIN"} {
		ends := func(tx pgx.Tx) ([]dedup.Completion, error) {
			_, err := keeps(t.Context(), wrote)(tx)
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), sql)
			require.NoError(t, err)
			if err := tx.(dedup.TxChecker).CheckTx(); err != nil { // as the gate does
				return nil, &dedup.TxEndedError{}
			}
			return nil, nil
		}
		_, err := claimOne(t.Context(), s, request(sql), ends)
		require.ErrorIs(t, err, dedup.ErrTxEnded)
		require.ErrorContains(t, err, "work kept for the commit")
		require.ErrorContains(t, group(t.Context(), s, ends), "work kept for the commit")
		for _, r := range batch(2, 0) {
			_ = s.Forget(t.Context(), r.Key)
		}
	}
	require.Zero(t, countEffects(t, pool, "emitted"))
	healthy(t, pool)
}

// The work before a commit has its own time-outs, which come in the same round trip if it sends a batch, and goes no further than a handler.
func TestFlushGetsItsOwnSettings(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, param("lock_timeout", "1234"), param("statement_timeout", "4321"))
	var got [2]string
	show := "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
	asks := map[string]func(context.Context, pgx.Tx) error{
		"row": func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, show).Scan(&got[0], &got[1]) },
		"rows": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, show)
			require.NoError(t, err)
			_, err = pgx.ForEachRow(rows, []any{&got[0], &got[1]}, func() error { return nil })
			return err
		},
		"batch": func(ctx context.Context, tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue(show).QueryRow(func(row pgx.Row) error { return row.Scan(&got[0], &got[1]) })
			return tx.SendBatch(ctx, &b).Close()
		},
		"savepoint": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, show).Scan(&got[0], &got[1]) })
		},
		"copy": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"}, pgx.CopyFromRows([][]any{{"copied"}}))
			return errors.Join(err, tx.QueryRow(ctx, show).Scan(&got[0], &got[1]))
		},
	}
	for name, ask := range asks {
		got = [2]string{}
		_, err := claimOne(t.Context(), s, request(name), keeps(t.Context(), ask))
		require.NoError(t, err, name)
		require.Equal(t, [2]string{"2s", "8s"}, got, name)
	}
	var late pgx.Tx
	_, err := claimOne(t.Context(), s, request("late"), keeps(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		late = tx
		require.ErrorIs(t, tx.Commit(ctx), pgstore.ErrTxOwned)
		return nil
	}))
	require.NoError(t, err)
	_, err = late.Exec(t.Context(), "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.ErrorIs(t, late.SendBatch(t.Context(), &pgx.Batch{}).Close(), pgx.ErrTxClosed)
}
