package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
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

// receipt is the result of the functions of these tests.
type receipt struct {
	Run   int32
	Notes map[string]int `json:",omitempty"`
}

func doKey(id string) dedup.Key { return dedup.Key{Tenant: "acme", Scope: "http", Type: "pay", ID: id} }

// guards returns as many as processes would have, in front of one store.
func guards(t testing.TB, n int, cfg dedup.GuardConfig, store func() *pgstore.Store) []*dedup.Guard {
	t.Helper()
	all := make([]*dedup.Guard, n)
	for i := range all {
		all[i] = dedup.NewGuard(store(), cfg)
		t.Cleanup(all[i].Close)
	}
	return all
}

// Rule 20, P-01: 100 callers of each of 20 keys, in five processes with a pool of four each. Each
// function is committed once, some fail first, and all callers get the committed result.
func TestDoTxManyCallers_Rule20(t *testing.T) {
	for layout, opts := range layouts {
		t.Run("layout"+layout, func(t *testing.T) {
			t.Parallel()
			url := newTables(t, opts...)
			doTxManyCallers(t, newPool(t, url), guards(t, 5, dedup.GuardConfig{Poll: 20 * time.Millisecond, Wait: time.Minute},
				func() *pgstore.Store { return pgstore.New(newPool(t, url, maxConns(4)), opts...) }))
		})
	}
}

func doTxManyCallers(t *testing.T, pool *pgxpool.Pool, processes []*dedup.Guard) {
	t.Helper()
	const callers, keys = 100, 20
	rng, _ := newSeed(t)
	var runs [keys]atomic.Int32
	got, errs := [keys][callers]receipt{}, [keys][callers]error{}
	var fresh [keys]atomic.Int32
	var all sync.WaitGroup
	for _, i := range rng.Perm(keys * callers) {
		key, caller := i%keys, i/keys
		id := fmt.Sprint("key-", key)
		all.Go(func() {
			for range 5 {
				r, replayed, err := dedup.DoTx(t.Context(), processes[caller%len(processes)], doKey(id), time.Minute,
					func(ctx context.Context, tx pgx.Tx) (receipt, error) {
						run := runs[key].Add(1)
						if err := addEffect(ctx, tx, id); err != nil || run <= 2 {
							return receipt{}, errors.Join(err, errHandler)
						}
						return receipt{Run: run}, nil
					})
				got[key][caller], errs[key][caller] = r, err
				if err == nil && !replayed {
					fresh[key].Add(1)
				}
				if !errors.Is(err, errHandler) {
					return
				}
			}
		})
	}
	all.Wait()
	for key := range keys {
		require.NoError(t, errors.Join(errs[key][:]...))
		require.EqualValues(t, 3, runs[key].Load(), "two that fail and one that does not")
		require.Equal(t, 1, countEffects(t, pool, fmt.Sprint("key-", key)))
		for caller := range callers {
			require.Equal(t, receipt{Run: 3}, got[key][caller])
		}
		require.EqualValues(t, 1, fresh[key].Load(), "all but the one who ran it are told a replay")
	}
	for _, g := range processes {
		require.False(t, g.Running(doKey("key-0")))
	}
}

func newGuard(t testing.TB, s *pgstore.Store) *dedup.Guard {
	t.Helper()
	return guards(t, 1, dedup.GuardConfig{Poll: 10 * time.Millisecond}, func() *pgstore.Store { return s })[0]
}

// G-13: the table has no readable result. A process with the earlier and the later key replays it, and one without the key gets
// an error and does not run the function again.
func TestDoTx_Sealed_G13(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	ring := func(sealWith string, ids ...string) *dedup.Keyring {
		cfg := dedup.KeyringConfig{SealWith: sealWith, Keys: map[string][]byte{}}
		for _, id := range ids {
			cfg.Keys[id] = bytes.Repeat([]byte(id), 32)
		}
		k, err := dedup.NewKeyring(cfg)
		require.NoError(t, err)
		return k
	}
	call := func(k *dedup.Keyring) (receipt, bool, error) {
		g := guards(t, 1, dedup.GuardConfig{Poll: 10 * time.Millisecond, Keyring: k}, func() *pgstore.Store { return s })[0]
		return dedup.DoTx(t.Context(), g, doKey("e"), time.Minute, func(ctx context.Context, tx pgx.Tx) (receipt, error) {
			return receipt{Run: 7, Notes: map[string]int{"card 4242": 1}}, addEffect(ctx, tx, "paid")
		})
	}
	paid, replayed, err := call(ring("a", "a"))
	require.NoError(t, err)
	require.False(t, replayed)
	readable := 0
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM processed_events WHERE position('4242'::bytea IN result) > 0").Scan(&readable))
	require.Zero(t, readable)
	again, replayed, err := call(ring("b", "a", "b"))
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, paid, again)
	for _, k := range []*dedup.Keyring{nil, ring("b", "b")} {
		none, replayed, err := call(k)
		require.ErrorIs(t, err, dedup.ErrSealed)
		require.False(t, replayed)
		require.Zero(t, none)
	}
	require.Equal(t, 1, countEffects(t, pool, "paid"))
}

// P-13: an error and a panic roll all of it back; the key is free.
func TestDoTxErrorRollsBack(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	g := newGuard(t, s)
	fails := func(end func() error) error {
		_, _, err := dedup.DoTx(t.Context(), g, doKey("e"), time.Minute, func(ctx context.Context, tx pgx.Tx) (receipt, error) {
			return receipt{}, errors.Join(addEffect(ctx, tx, "undone"), end())
		})
		return err
	}
	require.ErrorIs(t, fails(func() error { return errHandler }), errHandler)
	require.PanicsWithValue(t, "boom", func() { _ = fails(func() error { panic("boom") }) })
	require.False(t, g.Running(doKey("e")))
	_, _, err := dedup.DoTx(t.Context(), g, doKey("e"), time.Minute, func(ctx context.Context, tx pgx.Tx) (receipt, error) {
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return receipt{}, nil
	})
	require.ErrorIs(t, err, dedup.ErrTxAborted, "P-12")
	_, _, err = dedup.DoTx(t.Context(), g, doKey("e"), time.Minute, func(ctx context.Context, tx pgx.Tx) (any, error) {
		return func() {}, addEffect(ctx, tx, "undone")
	})
	require.ErrorIs(t, err, dedup.ErrResult, "what cannot be kept is not done")
	require.Zero(t, countEffects(t, pool, "undone"))
	r, replayed, err := dedup.DoTx(t.Context(), g, doKey("e"), time.Minute, func(ctx context.Context, tx pgx.Tx) (receipt, error) {
		return receipt{Run: 7}, addEffect(ctx, tx, "done")
	})
	require.NoError(t, err)
	require.False(t, replayed)
	require.Equal(t, receipt{Run: 7}, r)
	require.Equal(t, 1, countEffects(t, pool, "done"))
	healthy(t, pool)
}

// A result is exactly the kept one, also after a run of the same call that left another result and
// was rolled back.
func TestDoTxResultIsThatOfTheCommit(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	here, there := newGuard(t, s), newGuard(t, pgstore.New(pool))
	runs := 0
	r, replayed, err := dedup.DoTx(t.Context(), here, doKey("e"), time.Minute,
		func(ctx context.Context, tx pgx.Tx) (receipt, error) {
			runs++
			// A serialization failure: the run is rolled back and asked for again. Another process is first then.
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
			require.Error(t, err)
			_, rollback := tx.Conn().PgConn().Exec(ctx, "ROLLBACK").ReadAll() // lets the other one in
			require.NoError(t, rollback)
			_, _, other := dedup.DoTx(ctx, there, doKey("e"), time.Minute,
				func(ctx context.Context, tx pgx.Tx) (receipt, error) {
					return receipt{Run: 2, Notes: map[string]int{"there": 1}}, addEffect(ctx, tx, "there")
				})
			require.NoError(t, other)
			_, begin := tx.Conn().PgConn().Exec(ctx, "BEGIN; DO $$ BEGIN RAISE SQLSTATE '40001'; END $$").ReadAll()
			require.Error(t, begin)
			return receipt{Run: 1, Notes: map[string]int{"here": 1}}, err
		})
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, 1, runs)
	require.Equal(t, receipt{Run: 2, Notes: map[string]int{"there": 1}}, r)
}

// P-24: a caller waits for another one of the same process that sent no fingerprint. The waiting
// caller is compared with the record, not with that caller.
func TestDoTxFollowerIsCompared_P24(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	first, g := newGuard(t, pgstore.New(pool)), newGuard(t, s)
	held, stop := make(chan struct{}), make(chan struct{})
	run := func(g *dedup.Guard, opts ...dedup.DoOption) error {
		_, _, err := dedup.DoTx(t.Context(), g, doKey("e"), time.Minute, func(context.Context, pgx.Tx) (receipt, error) {
			close(held)
			<-stop
			return receipt{}, nil
		}, opts...)
		return err
	}
	var all sync.WaitGroup
	var errs [3]error
	all.Go(func() { errs[0] = run(first, dedup.SamePayload(dedup.Fingerprint{1})) })
	<-held
	all.Go(func() { errs[1] = run(g) })
	for !g.Running(doKey("e")) {
		runtime.Gosched()
	}
	all.Go(func() { errs[2] = run(g, dedup.SamePayload(dedup.Fingerprint{2})) })
	for range 3 { // the leading caller has asked again
		var a [1]dedup.Answer
		require.NoError(t, s.LookTx(t.Context(), []dedup.Request{request("other")}, a[:]))
	}
	close(stop)
	all.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[2], dedup.ErrConflict)
}

// A refusal is kept, its effects are not: the savepoint of the transaction that is lent (rule 20).
func TestEnterTxKeepsARefusal_Rule20(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	g := newGuard(t, s)
	call := dedup.Call{Key: doKey("e")}
	refused := dedup.Result{Schema: 1, Data: []byte("402")}
	a, err := dedup.EnterTx(t.Context(), g, call, time.Minute, func(tx pgx.Tx) (dedup.Result, error) {
		undo, err := tx.(dedup.Savepointer).Savepoint(t.Context())
		require.NoError(t, err)
		own, err := tx.Begin(t.Context()) // the handler has savepoints of its own
		require.NoError(t, err)
		require.NoError(t, addEffect(t.Context(), own, "undone"))
		require.NoError(t, own.Commit(t.Context()))
		own, err = tx.Begin(t.Context())
		require.NoError(t, err)
		_, err = own.Exec(t.Context(), "SELECT 1/0")
		require.Error(t, err)
		return refused, undo(t.Context())
	})
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, a.Verdict)
	require.Equal(t, refused, a.Result)
	require.Zero(t, countEffects(t, pool, "undone"))
	a, err = dedup.EnterTx(t.Context(), g, call, time.Minute, func(pgx.Tx) (dedup.Result, error) {
		return dedup.Result{}, errHandler
	})
	require.NoError(t, err)
	require.Equal(t, dedup.Done, a.Verdict)
	require.Equal(t, refused, a.Result)
	var looked [1]dedup.Answer
	require.NoError(t, s.LookTx(t.Context(), []dedup.Request{{Key: call.Key, Retention: retention}}, looked[:]))
	require.Equal(t, dedup.Done, looked[0].Verdict)
	require.Equal(t, refused, looked[0].Result)
}

// P-11: the connection breaks exactly before the server gets COMMIT, or exactly after it has committed. One effect, and the
// caller gets the result of the run that is committed.
func TestDoTxCutAtCommit_P11(t *testing.T) {
	for layout, opts := range layouts {
		t.Run("layout"+layout, func(t *testing.T) {
			t.Parallel()
			rng, seed := newSeed(t)
			url := newTables(t, opts...)
			direct := newPool(t, url)
			proxy, through := throughCutter(t, direct)
			proxy.only = "idem.session"
			g := newGuard(t, pgstore.New(newPool(t, url, through, maxConns(4)), opts...))
			n := soak(15, 300)
			doTxCuts(t, rng, n, g, direct, proxy)
			t.Logf("soak: TestDoTxCutAtCommit_P11 seed=%d size=%d kills=0 cuts=%d rebalances=0 outcome=%d rolled back, %d committed unheard",
				seed, 2*n, proxy.cuts(), proxy.before.Load(), proxy.after.Load())
			require.EqualValues(t, n, proxy.before.Load())
			require.EqualValues(t, n, proxy.after.Load())
		})
	}
}

func doTxCuts(t *testing.T, rng *rand.Rand, n int, g *dedup.Guard, direct *pgxpool.Pool, proxy *cutter) {
	t.Helper()
	for i, what := range shuffledCuts(rng, n) {
		id := fmt.Sprint("cut-", i)
		var runs int32
		proxy.arm(what)
		r, replayed, err := dedup.DoTx(t.Context(), g, doKey(id), time.Minute,
			func(ctx context.Context, tx pgx.Tx) (receipt, error) {
				runs++
				return receipt{Run: runs}, addEffect(ctx, tx, id)
			})
		require.NoError(t, err, "cut %s", what)
		require.True(t, proxy.spent(), "nothing was cut")
		want := map[cut]int32{beforeCommit: 2, afterCommit: 1}[what]
		require.Equal(t, want, runs, "cut %s", what)
		require.Equal(t, receipt{Run: want}, r, "cut %s", what)
		require.Equal(t, what == afterCommit, replayed, "cut %s: the result is read if it was committed unheard", what)
		require.Equal(t, 1, countEffects(t, direct, id), "cut %s", what)
	}
}
