package pgstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
)

// horizonRows is the number of rows that one step of these tests reads.
const horizonRows = 3

// putAhead puts expired rows into the tables. The records of the oldest ones, as many as one step
// reads, have times two hours ahead. Younger rows follow three hours later.
func putAhead(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for i := range horizonRows {
		after := time.Duration(i) * time.Second
		put(t, pool, old{scope: "g", id: fmt.Sprint("ahead ", i), made: 9*day - after,
			expired: 2*day - after, origin: 9*day - 2*time.Hour})
	}
	for i := range 2*horizonRows + 1 {
		after := 3*time.Hour + time.Duration(i)*time.Second
		put(t, pool, old{scope: "g", id: fmt.Sprint("later ", i), made: 9*day - after,
			expired: 2*day - after, origin: 9*day - 3*time.Hour + time.Minute})
	}
}

// putAtOnce puts more rows than one step reads into the tables, with one expiry.
func putAtOnce(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for i := range 2*horizonRows + 1 {
		put(t, pool, old{scope: "g", id: fmt.Sprint(i), made: 9*day - time.Duration(i)*time.Second, expired: 2 * day})
	}
	for _, table := range []string{"processed_events", "idempotency_keys"} {
		_, err := pool.Exec(t.Context(), "UPDATE "+table+" SET expires_at = $1", ago(2*day))
		require.NoError(t, err)
	}
}

// expiredRows are the rows of the tests.
var expiredRows = map[string]func(*testing.T, *pgxpool.Pool){"times ahead": putAhead, "one expiry": putAtOnce}

// Expired rows that stay for now, as many as one step of the horizon reads, do not stop the horizon.
// All rows go in the end.
func TestHorizon_PassesRowsThatStay_Rule8(t *testing.T) {
	t.Parallel()
	for name, rows := range expiredRows {
		t.Run(name, func(t *testing.T) {
			s, pool := newStore(t)
			rows(t, pool)
			record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
			for range 12 {
				r := pgstore.NewReaper(s, soonest())
				r.SetHorizonRows(horizonRows)
				_, err := r.RunOnce(t.Context())
				require.NoError(t, err)
			}
			require.Empty(t, left(t, pool))
		})
	}
}

// The same holds for the procedure for pg_cron.
func TestHorizon_CronPassesRowsThatStay_Rule8(t *testing.T) {
	t.Parallel()
	const limit = "5000000"
	require.Equal(t, 1, strings.Count(pgstore.CronSchema(), limit))
	for name, rows := range expiredRows {
		t.Run(name, func(t *testing.T) {
			s, pool := newStore(t)
			rows(t, pool)
			record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
			_, err := pool.Exec(t.Context(), strings.ReplaceAll(pgstore.CronSchema(), limit, fmt.Sprint(horizonRows)))
			require.NoError(t, err)
			for range 12 {
				_, err := pool.Exec(t.Context(), "CALL idem_reap(grace => '1 microsecond')")
				require.NoError(t, err)
			}
			require.Empty(t, left(t, pool))
		})
	}
}

// The same holds for the compact layout.
func TestHorizon_PassesCompactRowsThatStay_Rule8(t *testing.T) {
	t.Parallel()
	s, pool := newCompactStore(t)
	for i := range horizonRows {
		putCompact(t, s, pool, "g", fmt.Sprint("ahead ", i), "")
	}
	_, err := pool.Exec(t.Context(), `WITH e AS (UPDATE processed_events_compact
			SET made = made - 3 * 3600, expires = expires - 3 * 60, origin_time = clock_timestamp() - interval '2 days 1 hour')
		UPDATE idempotency_keys_compact SET created_at = created_at - interval '3 hours',
			expires_at = expires_at - interval '3 hours', origin_time = clock_timestamp() - interval '2 days 1 hour'`)
	require.NoError(t, err)
	for i := range horizonRows + 1 {
		putCompact(t, s, pool, "g", fmt.Sprint("later ", i), "")
	}
	record(t, s, "g", dedup.Progress{Topic: "payments", Next: 1, CaughtUp: true})
	for range 12 {
		r := pgstore.NewReaper(s, soonest())
		r.SetHorizonRows(horizonRows)
		_, err := r.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Empty(t, leftCompact(t, pool))
}

// Rows that stay, more than a statement reads, do not stop the deletion of the rows behind them:
// those of a silent scope, and dead letters. No statement reads more rows than a window.
func TestReaper_PassesWindowsOfRowsThatStay_Rule8(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	putBehind(t, pool)
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	cfg := soonest()
	cfg.Batch = 2
	var result pgstore.ReapResult
	r := pgstore.NewReaper(s, cfg) // the second run begins where rows may be deleted
	r.SetWindowRows(windowRows)
	for range 2 {
		var err error
		result, err = r.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []int64{behind, behind}, []int64{result.Events, result.Claims})
	requireBehindGone(t, pool)
}

// The same holds for the procedure for pg_cron.
func TestReaper_CronPassesWindowsOfRowsThatStay_Rule8(t *testing.T) {
	t.Parallel()
	const limit = "50000;"
	require.Equal(t, 1, strings.Count(pgstore.CronSchema(), limit))
	s, pool := newStore(t)
	putBehind(t, pool)
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	_, err := pool.Exec(t.Context(),
		strings.ReplaceAll(pgstore.CronSchema(), limit, fmt.Sprint(windowRows, ";")))
	require.NoError(t, err)
	for range 2 {
		_, err := pool.Exec(t.Context(), "CALL idem_reap(grace => '1 microsecond', batch => 2)")
		require.NoError(t, err)
	}
	requireBehindGone(t, pool)
}

const (
	windowRows = 3  // that one statement of these tests reads
	behind     = 10 // rows that are deleted
)

// putBehind puts rows that expired into the tables, behind more than a window of rows that stay.
func putBehind(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for i := range behind {
		after := time.Duration(i) * time.Second
		put(t, pool, old{scope: "silent", id: fmt.Sprint("silent ", i), made: 9 * day, expired: 8*day - after})
		put(t, pool, old{scope: "g", id: fmt.Sprint("dead ", i), status: "dead", made: 9 * day,
			changed: day, expired: 8*day - after})
		put(t, pool, old{scope: "silent", id: fmt.Sprint("at once ", i), made: 9 * day, expired: 7 * day})
		put(t, pool, old{scope: "g", id: fmt.Sprint("due ", i), made: 9 * day, expired: 6*day - after})
		put(t, pool, old{scope: "g", id: fmt.Sprint("live ", i), made: 9 * day})
	}
	for _, table := range []string{"processed_events", "idempotency_keys"} {
		_, err := pool.Exec(t.Context(),
			"UPDATE "+table+" SET expires_at = $1 WHERE event_id LIKE 'at once%'", ago(7*day))
		require.NoError(t, err)
	}
}

func requireBehindGone(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	all := left(t, pool)
	require.Len(t, all, 2*4*behind)
	require.NotContains(t, strings.Join(all, " "), "due")
}
