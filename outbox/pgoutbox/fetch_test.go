package pgoutbox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// fill inserts rows without the package, since it is quicker: n in state, and their keys.
func fill(t testing.TB, pool *pgxpool.Pool, n, state, keys int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `INSERT INTO idem_outbox (shard, state, topic, key, event_id, event_type, payload, ended_at)
		SELECT k % 64, $2::smallint, 'orders', convert_to(k::text, 'UTF8'), i::text, 't', repeat('p', 200)::bytea,
			CASE WHEN $2::smallint IN (1, 2) THEN now() END
		FROM (SELECT i, i % $3::int AS k FROM generate_series(1, $1::int) i) r`, n, state, keys)
	require.NoError(t, err)
}

// Waiting rows are found by their index, with any number of kept and parked rows in the table. This
// also holds without statistics, and with the generic plan of a prepared statement.
func TestPlans(t *testing.T) {
	url := testenv.Postgres(t)
	pool := newPool(t, url)
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	_, err := pool.Exec(t.Context(), "ALTER TABLE idem_outbox SET (autovacuum_enabled = off)")
	require.NoError(t, err)
	fill(t, pool, 50_000, 1, 1000)
	fill(t, pool, 300, 2, 1000)
	fill(t, pool, 5_000, 3, 1000)
	fill(t, pool, 1_000, 0, 1000)
	late := func() { // a backlog that the server has not noticed
		_, err := pool.Exec(t.Context(), "UPDATE idem_outbox SET shard = 8, state = 0 WHERE seq <= 20000")
		require.NoError(t, err)
	}
	var schema string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	shards, epochs := make([]int16, 64), make([]int64, 64)
	for i := range shards {
		shards[i] = int16(i)
	}
	fence := []any{
		shards, epochs, "relay", []int64{50_001, 56_001, 56_002}, []string{"1", "701", "702"},
	}
	statements := map[string]struct {
		args  []any
		index string
	}{
		"fetchOne":      {[]any{shards[8:9], 100, 100, 1 << 20, true}, "idem_outbox_waiting"},
		"fetch":         {[]any{shards, 2, 100, 1 << 20, true}, "idem_outbox_waiting"},
		"fetchSkip":     {[]any{shards, 2, 100, 1 << 20, true, []string{"orders"}, [][]byte{[]byte("7")}, []int64{5}}, "idem_outbox_waiting"},
		"fetchOnward":   {[]any{shards, 2, 100, 1 << 20, false}, "idem_outbox_waiting"},
		"settleSent":    {fence, "idem_outbox_pkey"},
		"settleKept":    {fence, "idem_outbox_pkey"},
		"settleRows":    {[]any{fence[3]}, "idem_outbox_pkey"},
		"settleParked":  {append(fence[:5:5], []string{"a", "b", "c"}), "idem_outbox_pkey"},
		"settleBlocked": {fence, "idem_outbox_parked"},
		"purge":         {[]any{int64(0), 100}, "idem_outbox_sent"},
		"backlog":       {[]any{100, 64}, "idem_outbox_waiting"},
		"parked":        {[]any{100}, "idem_outbox_parked"},
		"retry":         {[]any{50_001, "1"}, "idem_outbox_parked"},
	}
	texts := pgoutbox.Texts(schema)
	texts["fetchOne"], texts["fetchOnward"] = texts["fetch"], texts["fetch"]
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			_, err := pool.Exec(t.Context(), "ANALYZE idem_outbox, idem_outbox_shards")
			require.NoError(t, err)
			late()
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			pool := newPool(t, url, param("plan_cache_mode", mode))
			for name, s := range statements {
				t.Run(fmt.Sprintf("%s/%s/%v", name, mode, analyzed), func(t *testing.T) {
					var before string
					if strings.HasPrefix(name, "fetch") || name == "backlog" {
						before = texts["plain"]
					}
					plan := explain(t, pool, before, texts[name], s.args)
					if before != "" {
						require.NotContains(t, plan, "Bitmap", "it reads all that waits")
					}
					require.Contains(t, plan, s.index)
					require.NotContains(t, plan, "Seq Scan on idem_outbox ")
					require.NotContains(t, plan, "Seq Scan on "+schema+".idem_outbox ")
				})
			}
		}
	}
}

// A backlog of few aggregates lies in few shards. The search for the first row of the other shards
// must not read the whole backlog, as a scan of the primary key would.
func TestPlans_FewAggregates(t *testing.T) {
	pool := newPool(t, testenv.Postgres(t))
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	fill(t, pool, 20_000, 0, 10)
	_, err := pool.Exec(t.Context(), "ANALYZE idem_outbox")
	require.NoError(t, err)
	var schema string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	shards := make([]int16, 64)
	for i := range shards {
		shards[i] = int16(i)
	}
	texts := pgoutbox.Texts(schema)
	for name, args := range map[string][]any{
		"fetch":     {shards, 2, 100, 1 << 20, true},
		"fetchSkip": {shards, 2, 100, 1 << 20, true, []string{"orders"}, [][]byte{[]byte("77")}, []int64{5}},
		"backlog":   {100, 64},
	} {
		plan := explain(t, pool, texts["plain"], texts[name], args)
		require.Contains(t, plan, "idem_outbox_waiting", name)
		require.NotContains(t, plan, "idem_outbox_pkey", name)
	}
}

// explain runs a statement behind another in a transaction that it rolls back, and returns its
// plan.
func explain(t *testing.T, pool *pgxpool.Pool, before, text string, args []any) string {
	t.Helper()
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), before)
	require.NoError(t, err)
	rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+text, args...)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	return strings.Join(lines, "\n")
}
