package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// inTx runs fn in a transaction of its own, and commits unless it fails.
func inTx(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, fn)
}

func onEachLayout(t *testing.T, run func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool)) {
	for name, mode := range modes {
		for layout, opts := range layouts {
			if !covered(name, opts) {
				continue
			}
			t.Run(name+layout, func(t *testing.T) {
				t.Parallel()
				pool := newPool(t, newTables(t, opts...), inMode(mode))
				run(t, pgstore.New(pool, opts...), pool)
			})
		}
	}
}

// The insert that is the store's core, in transactions of the caller's own, and one record with ClaimTx.
func TestOnce(t *testing.T) {
	onEachLayout(t, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		ctx, key := t.Context(), request("e").Key
		once := func(key dedup.Key, fail error) (first bool, err error) {
			err = inTx(ctx, pool, func(tx pgx.Tx) (err error) {
				if first, err = s.Once(ctx, tx, key, 0); err != nil || !first {
					return err
				}
				again, err := s.Once(ctx, tx, key, 0)
				require.False(t, again, "in the same transaction")
				return errors.Join(err, addEffect(ctx, tx, key.ID), fail)
			})
			return first, err
		}
		first, err := once(key, errHandler)
		require.ErrorIs(t, err, errHandler)
		require.True(t, first)
		for i := range 3 { // rolled back: no key is on record
			first, err = once(key, nil)
			require.NoError(t, err)
			require.Equal(t, i == 0, first)
		}
		require.Equal(t, 1, countEffects(t, pool, "e"))
		v, err := claimOne(ctx, s, request("e"), never(t))
		require.NoError(t, err)
		require.Equal(t, dedup.Done, v)

		_, err = claimOne(ctx, s, request("handled"), plain)
		require.NoError(t, err)
		first, err = once(request("handled").Key, nil)
		require.NoError(t, err)
		require.False(t, first)

		other := key
		other.Scope = "another"
		first, err = once(other, nil)
		require.NoError(t, err)
		require.True(t, first)

		_, err = claimOne(ctx, s, request("outer"), func(tx pgx.Tx) ([]dedup.Completion, error) {
			first, err := s.Once(ctx, tx, request("inner").Key, time.Hour)
			require.True(t, first)
			return nil, err
		})
		require.NoError(t, err)
		first, err = once(request("inner").Key, nil)
		require.NoError(t, err)
		require.False(t, first)

		require.NoError(t, inTx(ctx, pool, func(tx pgx.Tx) error {
			_, err := s.Once(ctx, tx, dedup.Key{Scope: "orders"}, 0)
			require.ErrorIs(t, err, dedup.ErrKey)
			return tx.QueryRow(ctx, "SELECT 1").Scan(new(int)) // no statement was sent
		}))
	})
}

func TestOnceRetention(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	for id, want := range map[string]time.Duration{"default": 7 * 24 * time.Hour, "hour": time.Hour} {
		var got time.Duration
		require.NoError(t, inTx(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := s.Once(t.Context(), tx, request(id).Key, map[string]time.Duration{"hour": time.Hour}[id])
			return err
		}))
		require.NoError(t, pool.QueryRow(t.Context(),
			"SELECT expires_at - created_at FROM processed_events WHERE event_id = $1", id).Scan(&got))
		require.InDelta(t, want.Seconds(), got.Seconds(), 5)
	}
}

// P-01: many transactions at once, one is the first. The others wait for it, as long as their lock_timeout lets them.
func TestOnceRace_P01(t *testing.T) {
	onEachLayout(t, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		ctx := t.Context()
		var firsts atomic.Int32
		var all sync.WaitGroup
		errs := make([]error, 30)
		for i := range errs {
			all.Go(func() {
				errs[i] = inTx(ctx, pool, func(tx pgx.Tx) error {
					first, err := s.Once(ctx, tx, request("e").Key, time.Hour)
					if err != nil || !first {
						return err
					}
					if firsts.Add(1) == 1 {
						return errHandler // the next one is the first
					}
					return addEffect(ctx, tx, "one")
				})
			})
		}
		all.Wait()
		require.ErrorIs(t, errors.Join(errs...), errHandler)
		require.EqualValues(t, 2, firsts.Load())
		require.Equal(t, 1, countEffects(t, pool, "one"))

		release := holdTx(t, s, request("held"), "held")
		err := inTx(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '50ms'"); err != nil {
				return err
			}
			_, err := s.Once(ctx, tx, request("held").Key, 0)
			return err
		})
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Equal(t, "55P03", pg.Code)
		require.NoError(t, release())
		// The other way round: a claim with NoWait does not wait for Once either (rule 20).
		require.NoError(t, inTx(ctx, pool, func(tx pgx.Tx) error {
			first, err := s.Once(ctx, tx, request("mine").Key, 0)
			require.True(t, first)
			v, claimErr := claimOne(ctx, s, noWait("mine"), never(t))
			require.Equal(t, dedup.Busy, v)
			return errors.Join(err, claimErr)
		}))
	})
}

// P-02: a transaction with a snapshot from its beginning gets the error to run again, and does not
// count as the first.
func TestOnceAtRepeatableRead_P02(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT 1").Scan(new(int)))
	_, err = claimOne(t.Context(), s, request("e"), plain)
	require.NoError(t, err)
	_, err = s.Once(t.Context(), tx, request("e").Key, 0)
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, "40001", pg.Code)
}

func TestLockKey(t *testing.T) {
	t.Parallel()
	_, pool := newStore(t, maxConns(4))
	ctx := t.Context()
	try := func(parts ...string) (got bool) {
		require.NoError(t, inTx(ctx, pool, func(tx pgx.Tx) (err error) {
			got, err = pgstore.TryLockKey(ctx, tx, parts...)
			return errors.Join(err, tx.QueryRow(ctx, "SELECT 1").Scan(new(int)))
		}))
		return got
	}
	name := fmt.Sprint(pool.Config().ConnConfig.RuntimeParams["search_path"]) // other tests lock names of their own
	require.NoError(t, inTx(ctx, pool, func(tx pgx.Tx) error {
		err := pgstore.LockKey(ctx, tx, name, "account", "a:b")
		require.NoError(t, err)
		got, err := pgstore.TryLockKey(ctx, tx, name, "account", "a:b")
		require.True(t, got, "one's own")
		require.False(t, try(name, "account", "a:b"))
		require.True(t, try(name, "account:a", "b"), "other parts")
		require.True(t, try(name, "account", "a"))
		require.NoError(t, inTx(ctx, pool, func(tx pgx.Tx) error { // as the documentation says
			var sql bool
			err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock(hashtextextended($1::text, 0))",
				name+":account:a%3Ab").Scan(&sql)
			require.False(t, sql)
			return err
		}))
		require.ErrorIs(t, inTx(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '20ms'")
			require.NoError(t, err)
			var pg *pgconn.PgError
			require.ErrorAs(t, pgstore.LockKey(ctx, tx, name, "account", "a:b"), &pg)
			require.Equal(t, "55P03", pg.Code)
			return nil
		}), pgx.ErrTxCommitRollback)
		return err
	}))
	require.True(t, try(name, "account", "a:b"), "it ends with the transaction")
}

// Two withdrawals that each read the balance first: together they must not overdraw it. Without the lock they do (P-03).
func TestLockKeyGuardsReadThenWrite_P03(t *testing.T) {
	t.Parallel()
	_, pool := newStore(t, maxConns(8))
	ctx := t.Context()
	_, err := pool.Exec(ctx, `CREATE TABLE withdrawals (account text NOT NULL, amount int NOT NULL)`)
	require.NoError(t, err)
	name := fmt.Sprint(pool.Config().ConnConfig.RuntimeParams["search_path"])
	const balance = 100
	var all sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		all.Go(func() {
			errs[i] = inTx(ctx, pool, func(tx pgx.Tx) error {
				if err := pgstore.LockKey(ctx, tx, name, "a"); err != nil {
					return err
				}
				var spent int
				err := tx.QueryRow(ctx, "SELECT coalesce(sum(amount), 0) FROM withdrawals WHERE account = 'a'").Scan(&spent)
				if err != nil || spent+30 > balance {
					return err
				}
				_, err = tx.Exec(ctx, "INSERT INTO withdrawals SELECT 'a', 30 FROM pg_sleep(0.01)")
				return err
			})
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	var spent int
	require.NoError(t, pool.QueryRow(ctx, "SELECT sum(amount) FROM withdrawals").Scan(&spent))
	require.Equal(t, 90, spent)
}

// Rule 28, P-14: Once takes no connection but that of its transaction, also where the compact layout has no number yet. A number
// that was rolled back is not used again.
func TestOnceTakesNoOtherConnection_Rule28(t *testing.T) {
	t.Parallel()
	ctx, one := t.Context(), maxConns(1)
	for layout, opts := range layouts {
		url := newTables(t, opts...)
		pool := newPool(t, url, one)
		s := pgstore.New(pool, opts...)
		for i, fail := range []error{errHandler, nil, errHandler, nil} { // of two types
			key := dedup.Key{Scope: "imports", Type: fmt.Sprint(i / 2), ID: "line-1"}
			err := inTx(ctx, pool, func(tx pgx.Tx) error {
				for _, id := range []string{"line-1", "line-2"} {
					key.ID = id
					first, err := s.Once(ctx, tx, key, 0)
					require.NoError(t, err)
					require.True(t, first, "%s, %s of type %s", layout, id, key.Type)
				}
				return fail
			})
			require.ErrorIs(t, err, fail)
		}
		other := pgstore.New(newPool(t, url, one), opts...)
		for _, typ := range []string{"0", "1"} { // another process finds the same rows
			r := dedup.Request{Key: dedup.Key{Scope: "imports", Type: typ, ID: "line-1"}, Retention: retention}
			for _, s := range []*pgstore.Store{s, other} {
				v, err := claimOne(ctx, s, r, never(t))
				require.NoError(t, err)
				require.Equal(t, dedup.Done, v, "%s, type %s", layout, typ)
			}
		}
	}
}
