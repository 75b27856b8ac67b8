package pgstore_test

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

const (
	leaves         = "SELECT pg_terminate_backend(pg_backend_pid())"
	unserializable = "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"
	noTable        = "INSERT INTO nowhere VALUES (1)"
)

// unnamed is a name of a session that hides the name of a group's transaction, as a pooler may.
var unnamed = strings.Repeat("n", 50) + " [group]"

// execAll executes statements that succeed.
func execAll(t testing.TB, tx pgx.Tx, statements ...string) error {
	t.Helper()
	for _, sql := range statements {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			return err
		}
	}
	return nil
}

// handlerErr executes statements of a handler. Only the last one fails, and its error is the result.
func handlerErr(t testing.TB, tx pgx.Tx, statements ...string) error {
	t.Helper()
	last := len(statements) - 1
	require.NoError(t, execAll(t, tx, statements[:last]...))
	_, err := tx.Exec(t.Context(), statements[last])
	require.Error(t, err)
	return err
}

// failedGroup runs three events, of which the first one has an effect and fails as fail does. The
// result is the error of ClaimTx, which has that failure.
func failedGroup(t *testing.T, s *pgstore.Store, fail func(pgx.Tx) error) error {
	t.Helper()
	var failed error
	err := s.ClaimTx(t.Context(), time.Minute, batch(3, 0), make([]dedup.Answer, 3),
		func(tx pgx.Tx) ([]dedup.Completion, error) {
			require.NoError(t, addEffect(t.Context(), tx, "0"))
			failed = fail(tx)
			return nil, &dedup.GroupError{Unrun: []int{1, 2}, Err: failed}
		})
	require.ErrorIs(t, err, failed)
	return err
}

// Rule 12: what comes after a COMMIT as SQL does not hide it: a lost connection, or a failure in
// another transaction. The events that did not run are not lost.
func TestHiddenCommit_Rule12(t *testing.T) {
	t.Parallel()
	cut := func(t *testing.T, tx pgx.Tx) error {
		require.NoError(t, execAll(t, tx, "COMMIT"))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
		require.Error(t, err)
		require.True(t, tx.Conn().IsClosed())
		return err
	}
	fails := func(statements ...string) func(*testing.T, pgx.Tx) error {
		return func(t *testing.T, tx pgx.Tx) error { return handlerErr(t, tx, statements...) }
	}
	named := func(then error, statements ...string) func(*testing.T, pgx.Tx) error {
		return func(t *testing.T, tx pgx.Tx) error {
			require.NoError(t, execAll(t, tx, statements...))
			return then
		}
	}
	for name, c := range map[string]struct {
		run       func(*testing.T, pgx.Tx) error
		committed bool
	}{
		"COMMIT, a statement that is cut":   {cut, true},
		"COMMIT, the end of the session":    {fails("COMMIT", leaves), true},
		"COMMIT and the end in one message": {fails("COMMIT; " + leaves), true},
		"COMMIT, BEGIN, a failure":          {fails("COMMIT", "BEGIN", noTable), true},
		"COMMIT, BEGIN, a failure, as one":  {fails("COMMIT; BEGIN; " + noTable), true},
		"COMMIT, BEGIN, a conflict":         {fails("COMMIT", "BEGIN", unserializable), true},
		"COMMIT, BEGIN, the end":            {fails("COMMIT", "BEGIN", leaves), true},
		"COMMIT, BEGIN, an error of Go":     {named(errHandler, "COMMIT", "BEGIN"), true},
		"a failure alone":                   {fails(noTable), false},
		"the end of the session alone":      {fails(leaves), false},
		"an error of Go alone":              {named(errHandler), false},
		"ROLLBACK, BEGIN, a failure":        {fails("ROLLBACK", "BEGIN", noTable), false},
		"a savepoint, a failure, an undo":   {named(errHandler, "SAVEPOINT s", "ROLLBACK TO s"), false},
	} {
		for _, session := range []string{"named", unnamed} {
			t.Run(name+"/"+session[:5], func(t *testing.T) {
				t.Parallel()
				s, pool := newStore(t, maxConns(1), param("application_name", session))
				err := failedGroup(t, s, func(tx pgx.Tx) error { return c.run(t, tx) })
				_, ended := errors.AsType[*dedup.TxEndedError](err)
				require.Equal(t, c.committed, ended, err)
				if c.committed {
					require.NotErrorIs(t, err, dedup.ErrUnavailable)
					require.NotErrorIs(t, err, dedup.ErrContended)
				}
				for i, r := range batch(3, 0) {
					want := dedup.Fresh
					if c.committed && i == 0 {
						want = dedup.Done
					}
					v, err := claimOne(t.Context(), s, r, plain)
					require.NoError(t, err)
					require.Equal(t, want, v, "event %d", i)
				}
				healthy(t, pool)
			})
		}
	}
}

// abandonedGroup is the error of a group whose first handler is abandoned.
var abandonedGroup = &dedup.GroupError{
	Unrun: []int{1, 2}, Err: errors.Join(dedup.ErrAbandoned, errHandler),
}

// stillOnce requires that the first of three events counts as handled, and that the others can run.
func stillOnce(t *testing.T, s *pgstore.Store) {
	t.Helper()
	for i, want := range []dedup.Verdict{dedup.Done, dedup.Fresh, dedup.Fresh} {
		v, err := claimOne(t.Context(), s, batch(3, 0)[i], plain)
		require.NoError(t, err)
		require.Equal(t, want, v, "event %d", i)
	}
}

// Rule 12: a COMMIT as SQL reaches the server after the loss of its connection, and after the first
// question about it. The store asks again, and the events that did not run are not lost.
func TestLateCommit_Rule12(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	proxy, through := throughCutter(t, newPool(t, url))
	proxy.only = "COMMIT"
	s := pgstore.New(newPool(t, url, through, maxConns(1)))
	err := failedGroup(t, s, func(tx pgx.Tx) error {
		proxy.arm(lateCommit)
		return handlerErr(t, tx, "COMMIT")
	})
	ended, ok := errors.AsType[*dedup.TxEndedError](err)
	require.True(t, ok, err)
	require.Equal(t, []int{1, 2}, ended.Unrun)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	stillOnce(t, s)
	require.EqualValues(t, 1, proxy.after.Load())
}

// Rule 12: the same for a handler that then calls Rollback, and returns its error too. The engine
// takes this error for the end of the transaction.
func TestLateCommitAndRollback_Rule12(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	proxy, through := throughCutter(t, newPool(t, url))
	proxy.only = "COMMIT"
	s := pgstore.New(newPool(t, url, through, maxConns(1)))
	err := runGroup(t, s, batch(3, 0), func(tx pgx.Tx, _ int) error {
		require.NoError(t, addEffect(t.Context(), tx, "0"))
		proxy.arm(lateCommit)
		failed := errors.Join(handlerErr(t, tx, "COMMIT"), tx.Rollback(t.Context()))
		require.ErrorIs(t, failed, pgstore.ErrTxOwned)
		return errors.Join(failed, &dedup.TxEndedError{Unrun: []int{1, 2}})
	})
	require.ErrorIs(t, err, pgstore.ErrTxOwned)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	stillOnce(t, s)
}

// Rule 12: the same for a handler that is abandoned while its COMMIT is under way.
func TestAbandonedCommit_Rule12(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	proxy, through := throughCutter(t, newPool(t, url))
	proxy.only = "COMMIT"
	s := pgstore.New(newPool(t, url, through, maxConns(1)))
	returned := make(chan error, 1)
	err := s.ClaimTx(t.Context(), time.Minute, batch(3, 0), make([]dedup.Answer, 3),
		func(tx pgx.Tx) ([]dedup.Completion, error) {
			proxy.arm(heldCommit)
			go func() {
				_, err := tx.Exec(context.Background(), "COMMIT")
				returned <- err
			}()
			require.Eventually(t, proxy.late.Load, 5*time.Second, time.Millisecond)
			return nil, abandonedGroup
		})
	require.ErrorIs(t, err, errHandler)
	require.ErrorIs(t, err, dedup.ErrAbandoned)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.Error(t, <-returned)
	proxy.tell() // no effect if the store has asked
	stillOnce(t, s)
}

// Rule 12: an abandoned handler has not ended its transaction, and the error does not tell so.
func TestAbandonedWithoutCommit_Rule12(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	err := s.ClaimTx(t.Context(), time.Minute, batch(3, 0), make([]dedup.Answer, 3),
		func(pgx.Tx) ([]dedup.Completion, error) { return nil, abandonedGroup })
	require.Equal(t, error(abandonedGroup), err)
	for i, r := range batch(3, 0) {
		v, err := claimOne(t.Context(), s, r, plain)
		require.NoError(t, err)
		require.Equal(t, dedup.Fresh, v, "event %d", i)
	}
	healthy(t, pool)
}

// Rules 12 and 20: the server still executes a statement of a handler that is abandoned, because a
// cancel request is lost. The server has answered, so the store does not count as unavailable. No
// event is lost.
func TestAbandonedStatement_Rule12(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	pool := newPool(t, url)
	proxy, through := throughCutter(t, pool)
	proxy.late.Store(true) // no cancel request gets through
	s := pgstore.New(newPool(t, url, through, param("client_connection_check_interval", "0")))
	var pid uint32
	err := s.ClaimTx(t.Context(), time.Minute, batch(3, 0), make([]dedup.Answer, 3),
		func(tx pgx.Tx) ([]dedup.Completion, error) {
			pid = tx.Conn().PgConn().PID()
			go func() { _, _ = tx.Exec(context.Background(), "SELECT pg_sleep(120)") }()
			require.Eventually(t, func() bool {
				var sleeps bool
				err := pool.QueryRow(t.Context(),
					"SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $1", pid).Scan(&sleeps)
				return err == nil && sleeps
			}, 10*time.Second, 5*time.Millisecond)
			return nil, abandonedGroup
		})
	_, ended := pool.Exec(t.Context(), "SELECT pg_terminate_backend($1, 10000)", pid)
	require.NoError(t, ended)
	require.ErrorIs(t, err, errHandler)
	require.ErrorIs(t, err, dedup.ErrAbandoned)
	require.ErrorIs(t, err, dedup.ErrClaimsInDoubt)
	require.ErrorContains(t, err, "not ruled out")
	require.ErrorContains(t, err, "may still execute a statement of it")
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	for i, r := range batch(3, 0) {
		v, err := claimOne(t.Context(), s, r, plain)
		require.NoError(t, err)
		require.Equal(t, dedup.Fresh, v, "event %d", i)
	}
}

// Rule 12: the connection of the transaction is open, and its server does not answer. Time remains
// to ask with another one.
func TestHiddenCommitBehindASilentConnection_Rule12(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var holes []hole // one for each connection
	s, _ := newStore(t, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			mu.Lock()
			defer mu.Unlock()
			holes = append(holes, hole{conn, new(atomic.Bool)})
			return holes[len(holes)-1], err
		}
	}, maxConns(2), param("application_name", unnamed))
	err := failedGroup(t, s, func(tx pgx.Tx) error {
		require.NoError(t, execAll(t, tx, "COMMIT", "BEGIN"))
		mu.Lock()
		defer mu.Unlock()
		for _, h := range holes {
			h.open.Store(true)
			t.Cleanup(func() { _ = h.Close() }) // the pool would wait for its end
		}
		return errHandler
	})
	require.ErrorIs(t, err, dedup.ErrTxEnded)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	stillOnce(t, s)
}

// refusals refuses so many of the next connections of a pool.
func refusals(n *atomic.Int32) configure {
	return func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if n.Add(-1) >= 0 {
				return nil, net.ErrClosed
			}
			return dial(ctx, network, addr)
		}
	}
}

// Rule 12: a server that restarts refuses connections for a while. The store asks again, and takes
// the claims back.
func TestHiddenCommitBehindARestart_Rule12(t *testing.T) {
	t.Parallel()
	for name, statements := range map[string][]string{
		"the COMMIT is known":   {"COMMIT", leaves},
		"the COMMIT is unknown": {"COMMIT; " + leaves},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var refused atomic.Int32
			s, _ := newStore(t, refusals(&refused), maxConns(1))
			err := failedGroup(t, s, func(tx pgx.Tx) error {
				refused.Store(3)
				return handlerErr(t, tx, statements...)
			})
			require.ErrorIs(t, err, dedup.ErrTxEnded)
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
			require.Negative(t, refused.Load())
			stillOnce(t, s)
		})
	}
}

// Rule 12: if the server cannot be asked, the error says so, and matches that of an outage.
func TestHiddenCommitWithoutAnAnswer_Rule12(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32
	s, _ := newStore(t, refusals(&refused), maxConns(1))
	began := time.Now()
	err := failedGroup(t, s, func(tx pgx.Tx) error {
		refused.Store(math.MaxInt32)
		return handlerErr(t, tx, leaves)
	})
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorContains(t, err, "not ruled out")
	require.Less(t, time.Since(began), 15*time.Second)
}

// P-13: a single event sends COMMIT as SQL and then fails. The error has that failure and tells of
// the COMMIT, the handler does not run again, and the work that it kept is not lost in silence.
func TestFailureBehindACommit_P13(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statements      []string
		swallows, lives bool
	}{
		"COMMIT, a failure":                   {statements: []string{"COMMIT", noTable}},
		"COMMIT, a conflict":                  {statements: []string{"COMMIT", unserializable}},
		"COMMIT, the end of the session":      {statements: []string{"COMMIT", leaves}},
		"COMMIT, BEGIN, a failure":            {statements: []string{"COMMIT", "BEGIN", noTable}},
		"COMMIT, BEGIN, a conflict":           {statements: []string{"COMMIT", "BEGIN", unserializable}},
		"COMMIT, BEGIN, an error of Go":       {statements: []string{"COMMIT", "BEGIN"}, lives: true},
		"COMMIT, BEGIN, an error not told":    {statements: []string{"COMMIT", "BEGIN", noTable}, swallows: true},
		"COMMIT, an error not told":           {statements: []string{"COMMIT", noTable}, swallows: true},
		"COMMIT, a lost session, and no word": {statements: []string{"COMMIT", leaves}, swallows: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t, maxConns(1))
			failed, ran := errHandler, 0
			_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
				ran++
				_, err := keeps(t.Context(), runs("SELECT 1"))(tx)
				require.NoError(t, err)
				if c.lives {
					require.NoError(t, execAll(t, tx, c.statements...))
				} else if failed = handlerErr(t, tx, c.statements...); c.swallows {
					return nil, nil
				}
				return nil, failed
			})
			require.ErrorIs(t, err, dedup.ErrTxEnded)
			require.ErrorContains(t, err, "work kept for the commit is not written")
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
			if !c.swallows {
				require.ErrorIs(t, err, failed)
			}
			require.Equal(t, 1, ran)
			v, err := claimOne(t.Context(), s, request("e"), never(t))
			require.NoError(t, err)
			require.Equal(t, dedup.Done, v)
			require.Equal(t, 1, countEffects(t, pool, "effect"))
			healthy(t, pool)
		})
	}
}

// P-13: a single event sends COMMIT and BEGIN as SQL, and the work that it kept meets an error in the
// second transaction. The error tells of the COMMIT, also if a lock is the cause.
func TestKeptWorkFailsBehindACommit_P13(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40P01", "40001", "55P03", "23505", "57014"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t, maxConns(1))
			ran := 0
			v, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
				ran++
				_, err := keeps(t.Context(), raises(code))(tx)
				require.NoError(t, err)
				return nil, execAll(t, tx, "COMMIT", "BEGIN")
			})
			require.ErrorIs(t, err, dedup.ErrTxEnded)
			require.ErrorContains(t, err, "work kept for the commit is not written")
			require.ErrorContains(t, err, code)
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
			require.Zero(t, v)
			require.Equal(t, 1, ran)
			v, err = claimOne(t.Context(), s, request("e"), never(t))
			require.NoError(t, err)
			require.Equal(t, dedup.Done, v)
			require.Equal(t, 1, countEffects(t, pool, "effect"))
			healthy(t, pool)
		})
	}
}

// P-13: the same for a completion that is written in the second transaction and meets a lock.
func TestCompletionFailsBehindACommit_P13(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, param("lock_timeout", "50"))
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		require.NoError(t, addEffect(t.Context(), tx, "effect"))
		require.NoError(t, execAll(t, tx, "COMMIT", "BEGIN"))
		other, err := pool.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = other.Rollback(context.WithoutCancel(t.Context())) })
		require.NoError(t, execAll(t, other, "LOCK TABLE processed_events IN SHARE MODE"))
		return []dedup.Completion{{Claim: dedup.Claim{Key: request("e").Key}, Retention: time.Hour, Retry: 1}}, nil
	})
	require.ErrorIs(t, err, dedup.ErrTxEnded)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
}
