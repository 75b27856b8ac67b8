package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

const payOrders = "UPDATE orders SET paid = paid + 1 WHERE id = ANY($1)"

// bareInsert is the statement of the smallest store: no settings, no answers, only the rows.
const bareInsert = `INSERT INTO bare_events (tenant, scope, event_type, event_id, expires_at,
	origin_topic, origin_partition, origin_offset, origin_time)
	SELECT 'acme', 'orders', 'payment.completed', id, now() + interval '1 hour', 'payments', 3, pos, at
	FROM unnest($1::text[], $2::bigint[], $3::timestamptz[]) AS r(id, pos, at) ON CONFLICT DO NOTHING`

// BenchmarkAgainstSQL runs each batch twice, in turns: through ClaimTx, with one statement in the
// handler, and as bare SQL in one pipeline. The benchmark reports the two rates and their ratio,
// which a noisy machine moves little.
func BenchmarkAgainstSQL(b *testing.B) {
	for _, n := range []int{1, 256, 512} {
		for _, duplicates := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/duplicates=%v", n, duplicates), func(b *testing.B) { againstSQL(b, n, duplicates) })
		}
	}
}

func againstSQL(b *testing.B, n int, duplicates bool) {
	s, pool := newStore(b)
	const orders = 100_000
	_, err := pool.Exec(b.Context(), fmt.Sprintf(`CREATE TABLE orders (id bigint PRIMARY KEY, paid bigint NOT NULL);
		INSERT INTO orders SELECT i, 0 FROM generate_series(0, %d) i;
		CREATE TABLE bare_events (LIKE processed_events INCLUDING ALL)`, orders-1))
	require.NoError(b, err)
	answers, ids := make([]dedup.Answer, n), make([]int64, n)
	var ledger, bare time.Duration
	number, bares := 0, 0
	if duplicates {
		require.NoError(b, s.ClaimTx(b.Context(), time.Minute, batch(n, 0), answers, plain))
	}
	for b.Loop() {
		if !duplicates {
			number++
		}
		reqs := batch(n, number)
		for i := range ids {
			ids[i] = int64((number*n + i) % orders)
		}
		began := time.Now()
		require.NoError(b, s.ClaimTx(b.Context(), time.Minute, reqs, answers, func(tx pgx.Tx) ([]dedup.Completion, error) {
			_, err := tx.Exec(b.Context(), payOrders, ids)
			return nil, err
		}))
		ledger += time.Since(began)
		bares++
		fresh := batch(n, bares) // duplicates too are compared with fresh rows
		began = time.Now()
		require.NoError(b, runBare(b.Context(), pool, fresh, ids))
		bare += time.Since(began)
	}
	rate := func(d time.Duration) float64 { return float64(b.N*n) / d.Seconds() }
	b.ReportMetric(rate(ledger), "events/s")
	b.ReportMetric(rate(bare), "sql-events/s")
	b.ReportMetric(rate(ledger)/rate(bare), "of-sql")
}

func runBare(ctx context.Context, pool *pgxpool.Pool, reqs []dedup.Request, orders []int64) error {
	ids, offsets, times := make([]string, len(reqs)), make([]int64, len(reqs)), make([]time.Time, len(reqs))
	for i, r := range reqs {
		ids[i], offsets[i], times[i] = r.Key.ID, r.Origin.Offset, r.Origin.Time
	}
	var b pgx.Batch
	b.Queue("begin")
	b.Queue(bareInsert, ids, offsets, times)
	b.Queue(payOrders, orders)
	b.Queue("commit")
	return pool.SendBatch(ctx, &b).Close()
}
