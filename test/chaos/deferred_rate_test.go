package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/lane"
)

// One event in a hundred fails, all of them of 5 % of the keys: the others go on at 80 % of their rate at least (rule 4).
func TestDeferredKeysLeaveTheOthersTheirRate(t *testing.T) {
	needTime(t)
	rng := newRand(t)
	cfg, err := pgxpool.ParseConfig(testenv.Postgres(t))
	require.NoError(t, err)
	cfg.MaxConns = 16
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err = pool.Exec(t.Context(), `CREATE TABLE effects (run int, key int, seq int)`)
	require.NoError(t, err)
	run := 0
	for kind, events := range map[string]int{"tx": 40_000, "on": 5_000} {
		best := 0.0
		for range 5 { // the machine is shared: what is asked for is whether it can be
			rates := [2]float64{}
			for i, failing := range [2]bool{false, true} {
				run++
				rates[i] = deferredRate(t, rng, pool, kind, run, events, failing)
			}
			t.Logf("%s: others at %.0f events/s with failures, %.0f without", kind, rates[1], rates[0])
			if best = max(best, rates[1]/rates[0]); best >= 0.8 {
				break
			}
		}
		require.GreaterOrEqual(t, best, 0.8, kind)
	}
}

// deferredRate returns at which rate the events of keys without failures take effect.
func deferredRate(t *testing.T, rng *rand.Rand, pool *pgxpool.Pool, kind string, run, events int, failing bool) float64 {
	const keys, bad = 200, 10
	r := idem.NewRouter(idem.Type(idem.Fixed("e")), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.KeyOrdered(time.Second, 5*time.Second))
	boom := errors.New("boom")
	var failed, runs atomic.Int64
	fails := func(e idem.Event[event]) error {
		if e.Data.Key >= bad {
			runs.Add(1)
		}
		if failing && e.Data.Key < bad && e.Attempt == 1 && e.Data.Seq%5 == 0 {
			failed.Add(1)
			return boom
		}
		return nil
	}
	const insert = `INSERT INTO effects VALUES ($1, $2, $3)`
	if kind == "tx" {
		idem.OnTx(r, "e", func(ctx context.Context, tx pgx.Tx, e idem.Event[event]) error {
			_, err := tx.Exec(ctx, insert, run, e.Data.Key, e.Data.Seq)
			return errors.Join(err, fails(e))
		})
	} else {
		idem.On(r, "e", func(ctx context.Context, e idem.Event[event]) error {
			if err := fails(e); err != nil {
				return err
			}
			_, err := pool.Exec(ctx, insert, run, e.Data.Key, e.Data.Seq)
			return err
		})
	}
	p, err := idem.NewProcessor(r, idem.Config{Store: pgstore.New(pool), Scope: fmt.Sprintf("rate-%s-%d", kind, run), BusyWait: idem.Forever, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer p.Close()
	p.Assigned("t", 0)
	others := 0
	msgs := make([]*idem.Message, events)
	for i := range msgs {
		key := rng.IntN(keys)
		if key >= bad {
			others++
		}
		msgs[i] = &idem.Message{
			Topic: "t", Offset: int64(i), Key: fmt.Append(nil, key), Time: time.Now(),
			Value: fmt.Appendf(nil, `{"event_id":"%d-%d","key":%d,"seq":%d}`, run, i, key, i),
		}
	}
	l := lane.New(p, "t", 0, lane.Config{Lanes: 8})
	began := time.Now()
	for _, m := range msgs {
		require.NoError(t, l.Push(t.Context(), m))
	}
	require.Eventually(t, func() bool {
		if runs.Load() < int64(others) { // counting the effects costs what is being measured
			return false
		}
		var n int
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM effects WHERE run = $1 AND key >= $2`, run, bad).Scan(&n))
		return n == others
	}, 2*time.Minute, 10*time.Millisecond)
	took := time.Since(began)
	require.NoError(t, l.Close(t.Context(), nil))
	require.Equal(t, failing, failed.Load() > 0)
	return float64(others) / took.Seconds()
}

// event is the Seq-th event of all.
type event struct {
	Key int `json:"key"`
	Seq int `json:"seq"`
}
