package pgstore_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/decision"
)

// queryLog keeps the statements that are sent alone.
type queryLog struct {
	mu  sync.Mutex
	all []pgx.TraceQueryStartData
}

func (l *queryLog) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData,
) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d)
	return ctx
}

func (l *queryLog) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (l *queryLog) take() []pgx.TraceQueryStartData {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// Rows that stay, more than a statement may read, do not stop the deletion of the rows behind them:
// the rows of a silent scope, and dead letters. No statement reads more rows than a window.
func TestReaperReadsBoundedRows_Rule8(t *testing.T) {
	const due = 10
	for name, c := range map[string]struct {
		opts  []pgstore.Option
		table string
		fill  string // $1: rows that stay, $2: rows behind
	}{
		"readable": {table: "processed_events", fill: `INSERT INTO processed_events
				(tenant, scope, event_type, event_id, status, created_at, updated_at, expires_at)
			SELECT '', CASE WHEN i > 2 * $1 OR i % 2 = 0 THEN 'g' ELSE 'silent' END, 'x', i::text,
				CASE WHEN i > 2 * $1 THEN 'done' ELSE 'dead' END, now() - interval '9 days', now(),
				now() - interval '2 days' + i * interval '1 millisecond'
			FROM generate_series(1, 2 * $1 + $2) i`},
		"compact": {opts: []pgstore.Option{pgstore.Compact()}, table: "processed_events_compact", fill: `WITH k AS (
				INSERT INTO idem_kinds (tenant, scope, event_type, form)
				VALUES ('', 'g', 'x', 1), ('', 'silent', 'x', 1) RETURNING kind, scope)
			INSERT INTO processed_events_compact (kind, id, made, expires, rest)
			SELECT k.kind, md5(i::text)::uuid, date_part('epoch', now()) - 946684800 - 9 * 86400,
				date_part('epoch', now()) / 60 - 2 * 1440 + i / 1000,
				CASE WHEN i <= 2 * $1 THEN jsonb_build_object('status', 'dead', 'updated_at', now()) END
			FROM generate_series(1, 2 * $1 + $2) i JOIN k
				ON k.scope = CASE WHEN i > 2 * $1 OR i % 2 = 0 THEN 'g' ELSE 'silent' END`},
	} {
		t.Run(name, func(t *testing.T) {
			log := &queryLog{}
			pool := newPool(t, unusedTables(t, c.opts...),
				func(c *pgxpool.Config) { c.ConnConfig.Tracer = log })
			s := pgstore.New(pool, c.opts...)
			_, err := pool.Exec(t.Context(), c.fill, decision.WindowRows, due)
			require.NoError(t, err)
			_, err = pool.Exec(t.Context(), "VACUUM ANALYZE "+c.table)
			require.NoError(t, err)
			record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
			log.take()
			require.Zero(t, reap(t, s, soonest()).Events)
			require.EqualValues(t, due, reap(t, s, soonest()).Events)
			looked := 0
			for _, q := range log.take() {
				if strings.Contains(q.SQL, "processed_events") && strings.Contains(q.SQL, "max(") {
					looked++
					require.LessOrEqual(t, rowsRead(t, pool, q), decision.WindowRows+1000, q.SQL)
				}
			}
			require.Greater(t, looked, 2)

			r := pgstore.NewReaper(s, soonest()) // keeps running
			for run, most := range []int{100, 4} {
				log.take()
				_, err := r.RunOnce(t.Context())
				require.NoError(t, err)
				looked := 0
				for _, q := range log.take() {
					if strings.Contains(q.SQL, "processed_events") && strings.Contains(q.SQL, "max(") {
						looked++
					}
				}
				require.LessOrEqual(t, looked, most, "run %d", run)
			}
		})
	}
}

var planRows = regexp.MustCompile(`processed_events\w*_expires_at\D.* rows=(\d+)\D+loops=1\)` +
	`\n.*Index Cond.*\n(?:.*Filter: .*\n.*Rows Removed by Filter: (\d+))?`)

// rowsRead returns how many rows q reads by the index on the expiry, with the settings of a reaper.
func rowsRead(t *testing.T, pool *pgxpool.Pool, q pgx.TraceQueryStartData) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	for _, off := range []string{"enable_seqscan", "enable_bitmapscan", "enable_sort", "jit"} {
		_, err = tx.Exec(ctx, "SET LOCAL "+off+" = off")
		require.NoError(t, err)
	}
	_, err = tx.Exec(ctx, "SET LOCAL max_parallel_workers_per_gather = 0")
	require.NoError(t, err)
	rows, err := tx.Query(ctx, "EXPLAIN (ANALYZE, TIMING off, COSTS off) "+q.SQL, q.Args...)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	m := planRows.FindStringSubmatch(plan)
	require.NotNil(t, m, plan)
	for _, digits := range m[1:] {
		if digits != "" {
			part, err := strconv.Atoi(digits)
			require.NoError(t, err)
			n += part
		}
	}
	return n
}
