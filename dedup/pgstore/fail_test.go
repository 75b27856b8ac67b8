package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// P-11: the connection breaks at COMMIT, before and after the server did it. The outcome is
// unknown. Another claim shows it, and the effect is there once.
func TestConnectionLostAtCommit_P11(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	direct := newPool(t, url)
	proxy, through := throughCutter(t, direct)
	pool := newPool(t, url, through)
	s := pgstore.New(pool)
	for mode, want := range map[cut]dedup.Verdict{beforeCommit: dedup.Fresh, afterCommit: dedup.Done} {
		for i := range 20 {
			id := fmt.Sprint(mode, i)
			proxy.arm(mode)
			_, err := claimOne(t.Context(), s, request(id), effect(t.Context(), id))
			require.ErrorIs(t, err, dedup.ErrUnknownCommit, id)
			require.ErrorIs(t, err, dedup.ErrUnavailable, id)
			v, err := claimOne(t.Context(), s, request(id), effect(t.Context(), id))
			require.NoError(t, err)
			require.Equal(t, want, v, id)
			require.Equal(t, 1, countEffects(t, direct, id), id)
		}
	}
	require.EqualValues(t, 20, proxy.before.Load())
	require.EqualValues(t, 20, proxy.after.Load())
	healthy(t, pool)
}

// P-16: callers that go away at any moment leave no broken connection, no transaction, and no half
// effect.
func TestCancelledAtAnyPoint_P16(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, maxConns(4))
	var wg sync.WaitGroup
	for w := range 4 {
		rng := rand.New(rand.NewPCG(16, uint64(w)))
		wg.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(6_000))*time.Microsecond)
				id := fmt.Sprint(w, " ", i)
				v, err := claimOne(ctx, s, request(id), effect(ctx, id))
				cancel()
				if err == nil && v != dedup.Fresh {
					t.Errorf("%s: %v", id, v)
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: the caller's own end is not in the error: %v", id, err)
				}
				if errors.Is(err, dedup.ErrUnknownCommit) {
					t.Errorf("%s: COMMIT was cut short by its caller: %v", id, err)
				}
				if n := countEffects(t, pool, id); err == nil && n != 1 || err != nil && n != 0 {
					t.Errorf("%s: %d effects after %v", id, n, err)
				}
			}
		})
	}
	wg.Wait()
	healthy(t, pool)
}

// P-16: a handler that is done is committed although its caller has gone meanwhile; one that is not is rolled back.
func TestCancelledInTheHandler_P16(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, maxConns(2))
	ctx, cancel := context.WithCancel(t.Context())
	v, err := claimOne(ctx, s, request("done"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		err := addEffect(ctx, tx, "done")
		cancel()
		return nil, err
	})
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
	require.Equal(t, 1, countEffects(t, pool, "done"))

	ctx, cancel = context.WithCancel(t.Context())
	_, err = claimOne(ctx, s, request("cut"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		require.NoError(t, addEffect(ctx, tx, "cut"))
		cancel()
		return nil, addEffect(ctx, tx, "cut")
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.Zero(t, countEffects(t, pool, "cut"))
	healthy(t, pool)
}

// P-26: sessions that are ended by an administrator, while their handlers run and between calls.
func TestTerminatedBackends_P26(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, maxConns(3))
	admin := newPool(t, pool.Config().ConnString())
	for i := range 10 {
		id := fmt.Sprint(i)
		_, err := claimOne(t.Context(), s, request(id), func(tx pgx.Tx) ([]dedup.Completion, error) {
			pid := tx.Conn().PgConn().PID()
			_, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid)
			require.NoError(t, err)
			waitForBackend(t, admin, pid, 0)
			if i%2 == 0 {
				return nil, nil // it does not notice
			}
			return nil, fmt.Errorf("handler: %w", addEffect(t.Context(), tx, id))
		})
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.NotErrorIs(t, err, context.Canceled)
		require.Eventually(t, func() bool {
			v, err := claimOne(t.Context(), s, request(id), plain)
			return err == nil && v == dedup.Fresh
		}, 10*time.Second, 10*time.Millisecond)
	}
	healthy(t, pool)
}

// P-26: after a fail-over the pool may still be that of the old primary.
func TestReadOnlyIsUnavailable_P26(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, param("default_transaction_read_only", "on"))
	_, err := claimOne(t.Context(), s, request("e"), never(t))
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	var a [1]dedup.Answer
	err = s.Claim(t.Context(), dedup.NewToken(), time.Minute, []dedup.Request{request("e")}, a[:])
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.Zero(t, a[0].Verdict)
	_, err = s.Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrUnavailable)

	s, _ = newStore(t)
	_, err = claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		_, err := tx.Exec(t.Context(), "SET TRANSACTION READ ONLY")
		require.NoError(t, err)
		return nil, addEffect(t.Context(), tx, "e") // as if the server had become a standby under it
	})
	require.ErrorIs(t, err, dedup.ErrUnavailable)
}

func TestUnreachableIsUnavailable(t *testing.T) {
	t.Parallel()
	s := downStore(t).(*pgstore.Store)
	_, err := claimOne(t.Context(), s, request("e"), never(t))
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	_, err = s.CountStart(t.Context(), request("e").Key, dedup.Origin{Topic: "t"})
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorIs(t, s.ClearStarts(t.Context(), request("e").Key, dedup.Origin{Topic: "t"}), dedup.ErrUnavailable)
	require.ErrorIs(t, s.Ping(t.Context()), dedup.ErrUnavailable)

	up, pool := newStore(t)
	pool.Close()
	_, err = claimOne(t.Context(), up, request("e"), never(t))
	require.ErrorIs(t, err, dedup.ErrUnavailable)
}

// A server that accepts and never answers: the caller's deadline ends it, and the store is to blame.
func TestSilentServerIsUnavailable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = l.Close() })
	s := pgstore.New(newPool(t, "postgres://x@"+l.Addr().String()+"/x?sslmode=disable"))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = claimOne(ctx, s, request("e"), never(t))
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Missing tables make no event dead: the deployment has to run Migrate.
func TestMissingTables(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	pool := newPool(t, url)
	_, err := pool.Exec(t.Context(), "DROP TABLE processed_events, idempotency_keys")
	require.NoError(t, err)
	for _, s := range []*pgstore.Store{
		pgstore.New(pool), pgstore.New(pool, pgstore.InSchema(pool.Config().ConnConfig.RuntimeParams["search_path"])),
		pgstore.New(pool, pgstore.InSchema("no_such_schema")),
	} {
		_, err := claimOne(t.Context(), s, request("e"), never(t))
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.ErrorContains(t, err, "pgstore.Migrate")
		_, err = s.Check(t.Context())
		require.Error(t, err)
	}
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err = claimOne(t.Context(), pgstore.New(pool), request("e"), plain)
	require.NoError(t, err)
}

// Rule 35: a record of a later release is not guessed at, in either table.
func TestUnknownRecordIsNoAnswer_Rule35(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	for _, change := range []string{
		"SET record_version = 2", "SET status = 'simmering'",
	} {
		reqs := batch(2, 0)
		answers := make([]dedup.Answer, 2)
		_, err := pool.Exec(t.Context(), "TRUNCATE processed_events, idempotency_keys")
		require.NoError(t, err)
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, plain))
		require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, answers))
		for _, table := range []string{"processed_events", "idempotency_keys"} {
			_, err := pool.Exec(t.Context(), fmt.Sprintf(`ALTER TABLE %[1]s DROP CONSTRAINT IF EXISTS %[1]s_status;
				UPDATE %[1]s %[2]s WHERE event_id = '%[3]s'`, table, change, reqs[1].Key.ID))
			require.NoError(t, err)
		}
		require.ErrorIs(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, never(t)), dedup.ErrUnavailable)
		require.Equal(t, make([]dedup.Answer, 2), answers)
		require.ErrorIs(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, answers), dedup.ErrUnavailable)
		require.Equal(t, make([]dedup.Answer, 2), answers)
	}
}
