package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
)

// statementLog keeps the statements that are sent in batches.
type statementLog struct {
	sql  []string
	args [][]any
}

func (l *statementLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (l *statementLog) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (l *statementLog) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (l *statementLog) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	l.sql, l.args = append(l.sql, d.SQL), append(l.args, d.Args)
}
func (l *statementLog) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A search for due events reads the heads of the queues, and not all waiting events. That holds
// also while the server has no statistics of a table that has just grown (rule 4).
func TestDueReadsNoQueue_Rule4(t *testing.T) {
	log := &statementLog{}
	pool := newPool(t, unusedTables(t), maxConns(1), func(c *pgxpool.Config) { c.ConnConfig.Tracer = log })
	s := pgstore.New(pool)
	part := dedup.DeferredPartition{Scope: "orders", Topic: "payments"}
	var events []dedup.Deferred
	for i := range 600 {
		r := request(fmt.Sprintf("e-%03d", i))
		r.Key.Scope = part.Scope
		events = append(events, dedup.Deferred{Key: r.Key, Queue: fmt.Sprint("queue-", i%3), Origin: r.Origin, Data: []byte("x")})
	}
	require.NoError(t, s.Defer(t.Context(), part, events))

	for name, look := range map[string]func() int{
		"due": func() int {
			heads, _, err := s.Due(t.Context(), part, 10)
			require.NoError(t, err)
			return len(heads)
		},
		"first": func() int {
			first, err := s.First(t.Context(), part, "queue-1", 3)
			require.NoError(t, err)
			return len(first)
		},
	} {
		t.Run(name, func(t *testing.T) {
			log.sql, log.args = nil, nil
			require.Equal(t, 3, look())
			for i, sql := range log.sql {
				if strings.Contains(sql, "deferred_queues") {
					requireFewRows(t, pool, log.sql[0], log.args[0], sql, log.args[i])
					return
				}
			}
			require.Fail(t, "the statement was not seen", log.sql)
		})
	}
}

// requireFewRows explains a statement after that which begins the store's own transactions.
func requireFewRows(t *testing.T, pool *pgxpool.Pool, begin string, beginArgs []any, sql string, args []any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if !strings.HasPrefix(strings.ToLower(begin), "begin") {
			if _, err := tx.Exec(ctx, begin, beginArgs...); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, "EXPLAIN (ANALYZE, TIMING off) "+sql, args...)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan := strings.Join(lines, "\n")
		require.NotContains(t, plan, "Rows Removed by Filter", plan)
		require.NotContains(t, plan, "deferred_events_identity", plan)
		return err
	})
	require.NoError(t, err)
}
