package pgstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// putCompact handles an event in both ways and makes its records two days older.
func putCompact(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool, scope, id, dead string) {
	t.Helper()
	r := request(id)
	r.Key.Scope, r.Origin.Time = scope, ago(2*day)
	answers := make([]dedup.Answer, 1)
	err := s.ClaimTx(t.Context(), time.Minute, []dedup.Request{r}, answers, func(pgx.Tx) ([]dedup.Completion, error) {
		return []dedup.Completion{{Claim: dedup.Claim{Key: r.Key}, Dead: dead, Retention: retention}}, nil
	})
	require.NoError(t, err)
	token := dedup.NewToken()
	require.NoError(t, s.Claim(t.Context(), token, time.Minute, []dedup.Request{r}, answers))
	require.NoError(t, s.Complete(t.Context(),
		[]dedup.Completion{{Claim: r.Held(token, answers[0]), Dead: dead, Retention: retention}}))
	_, err = pool.Exec(t.Context(), `WITH k AS (SELECT kind FROM idem_kinds WHERE scope = $1), e AS (
			UPDATE processed_events_compact SET made = made - 2 * 86400, expires = expires - 2 * 1440
			WHERE kind IN (SELECT kind FROM k) AND made > date_part('epoch', now()) - 946684800 - 3600)
		UPDATE idempotency_keys_compact SET created_at = created_at - interval '2 days', expires_at = expires_at - interval '2 days'
		WHERE kind IN (SELECT kind FROM k) AND created_at > now() - interval '1 hour'`, scope)
	require.NoError(t, err)
}

func leftCompact(t *testing.T, pool *pgxpool.Pool) (all []string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT coalesce(array_agg(r ORDER BY r), '{}') FROM (
		SELECT 'event/' || scope || '/' || status FROM processed_events_read
		UNION ALL SELECT 'key/' || scope || '/' || status FROM idempotency_keys_read) t(r)`).Scan(&all))
	return all
}

// Rules 8 and 28: a reaper deletes rows of the compact layout like those of the readable one, scope
// by scope. First the horizon moves, then rows are deleted. An event that was given up stays for
// its dead letter. A deleted event is TooOld.
func TestReaperOfCompactRows_Rule8(t *testing.T) {
	t.Parallel()
	s, pool := newCompactStore(t)
	putCompact(t, s, pool, "g", "a", "")
	putCompact(t, s, pool, "g", "dead", "poison")
	putCompact(t, s, pool, "other", "a", "")
	record(t, s, "g", dedup.Progress{Topic: "payments", Next: 1, CaughtUp: true})
	result := reap(t, s, soonest())
	require.Zero(t, result.Events+result.Claims, "announced, not deleted")
	require.WithinDuration(t, ago(2*day), result.Scopes[0].Horizon, time.Minute)
	require.Len(t, leftCompact(t, pool), 6)
	result = reap(t, s, soonest())
	require.Equal(t, []int64{1, 1}, []int64{result.Events, result.Claims})
	require.Zero(t, result.Stuck)
	require.Equal(t, []string{"event/g/dead", "event/other/done", "key/g/dead", "key/other/done"}, leftCompact(t, pool))
	cfg := soonest()
	cfg.DeadLetterRetention = time.Nanosecond
	reap(t, s, cfg)
	reap(t, s, cfg)
	require.Equal(t, []string{"event/other/done", "key/other/done"}, leftCompact(t, pool))

	r := request("a")
	r.Key.Scope, r.Origin.Time = "g", ago(3*day)
	answers := make([]dedup.Answer, 1)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{r}, answers, plain))
	require.Equal(t, dedup.TooOld, answers[0].Verdict)
}

// Expired rows are found by the index, and without the joins of the view. For this the expression
// of the index must be that of the view.
func TestReaperOfCompactRowsUsesTheIndex(t *testing.T) {
	t.Parallel()
	pool := newPool(t, unusedTables(t, pgstore.Compact()))
	s := pgstore.New(pool, pgstore.Compact())
	putCompact(t, s, pool, "g", "a", "")
	_, err := pool.Exec(t.Context(), `INSERT INTO processed_events_compact (expires, made, kind, id)
		SELECT expires + n, made, kind, gen_random_uuid() FROM processed_events_compact, generate_series(0, 9999) n;
		ANALYZE processed_events_compact`)
	require.NoError(t, err)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), `SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off`)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), `EXPLAIN SELECT created_at, expires_at FROM processed_events_read
		WHERE kind = ANY (ARRAY(SELECT i.kind FROM idem_kinds i WHERE i.scope = 'g')) AND expires_at < now()
		ORDER BY expires_at LIMIT 10`)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotContains(t, strings.Join(plan, " "), "idem_origins")
	require.Contains(t, strings.Join(plan, " "), "processed_events_compact_expires_at")
}
