package sqlstore_test

import (
	"database/sql"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/stretchr/testify/require"
)

// Expired rows that stay for now, as many as one step of the horizon reads, do not stop the
// horizon. All rows go in the end.
func TestHorizonPassesRowsThatStay_Rule8(t *testing.T) {
	const day, rows = 24 * time.Hour, 3
	now := time.Now()
	for name, put := range map[string]func(add func(made, expired, origin time.Duration)){
		"times ahead": func(add func(made, expired, origin time.Duration)) {
			for i := range rows {
				after := time.Duration(i) * time.Second
				add(9*day-after, 2*day-after, 9*day-2*time.Hour)
			}
			for i := range 2*rows + 1 {
				after := 3*time.Hour + time.Duration(i)*time.Second
				add(9*day-after, 2*day-after, 9*day-3*time.Hour+time.Minute)
			}
		},
		"one expiry": func(add func(made, expired, origin time.Duration)) {
			for i := range 2*rows + 1 {
				add(9*day-time.Duration(i)*time.Second, 2*day, 10*day)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "idem.db")
			s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			db, err := sql.Open("sqlite", path)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			id := 0
			put(func(made, expired, origin time.Duration) {
				id++
				_, err := db.ExecContext(t.Context(), `INSERT INTO processed_events (tenant, scope, event_type,
					event_id, status, record_version, generation, retry, fence, created_at, expires_at,
					origin_time)
					VALUES ('', 'g', 'x', ?, 'done', 1, 0, 0, 1, ?, ?, ?)`, id, now.Add(-made).UnixMicro(),
					now.Add(-expired).UnixMicro(), now.Add(-origin).UnixMicro())
				require.NoError(t, err)
			})
			require.NoError(t, s.RecordProgress(t.Context(), "g",
				[]dedup.Progress{{Topic: "t", Next: 1, CaughtUp: true}}))
			for range 12 {
				r := sqlstore.NewReaper(s, sqlstore.ReaperConfig{Grace: time.Microsecond, Pause: -1})
				r.SetHorizonRows(rows)
				_, err := r.RunOnce(t.Context())
				require.NoError(t, err)
			}
			var n int
			const count = "SELECT count(*) FROM processed_events"
			require.NoError(t, db.QueryRowContext(t.Context(), count).Scan(&n))
			require.Zero(t, n)
		})
	}
}

// Rows of other scopes and rows that stay, more than a statement reads, do not stop the deletion of
// the rows behind them.
func TestReaperPassesWindowsOfRowsThatStay_Rule8(t *testing.T) {
	const day, window = 24 * time.Hour, 3
	now := time.Now()
	path := filepath.Join(t.TempDir(), "idem.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	id := 0
	add := func(scope, status string, changed, expired time.Duration) {
		t.Helper()
		id++
		_, err := db.ExecContext(t.Context(), `INSERT INTO processed_events (tenant, scope, event_type,
				event_id, status, record_version, generation, retry, fence, created_at, updated_at,
				expires_at)
			VALUES ('', ?, 'x', ?, ?, 1, 0, 0, 1, ?, ?, ?)`, scope, id, status,
			now.Add(-9*day).UnixMicro(), now.Add(-changed).UnixMicro(),
			now.Add(-expired).UnixMicro())
		require.NoError(t, err)
	}
	for i := range 4*window + 1 {
		add("silent", "done", 9*day, 8*day-time.Duration(i)*time.Second)
		add("g", "dead", day, 8*day-time.Duration(i)*time.Second)
		add("silent", "done", 9*day, 7*day) // more than a window with one expiry
		add("g", "done", 9*day, 7*day)
		add("g", "done", 9*day, 6*day-time.Duration(i)*time.Second)
		add("g", "done", 9*day, -time.Hour)
	}
	require.NoError(t, s.RecordProgress(t.Context(), "g",
		[]dedup.Progress{{Topic: "t", Next: 1, CaughtUp: true}}))
	var result sqlstore.ReapResult
	cfg := sqlstore.ReaperConfig{Grace: time.Microsecond, Batch: 2, Pause: -1}
	r := sqlstore.NewReaper(s, cfg) // the second run begins where rows may be deleted
	r.SetWindowRows(window)
	for range 2 {
		result, err = r.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.EqualValues(t, 2*(4*window+1), result.Events)
	for where, n := range map[string]int{"scope = 'silent'": 2, "status = 'dead'": 1,
		"expires_at > " + strconv.FormatInt(now.UnixMicro(), 10): 1, "1 = 1": 4} {
		var left int
		query := "SELECT count(*) FROM processed_events WHERE " + where
		err := db.QueryRowContext(t.Context(), query).Scan(&left)
		require.NoError(t, err)
		require.Equal(t, n*(4*window+1), left, where)
	}
}

// The horizon of a scope never goes back, whatever a reaper has read before. The cut-off may.
func TestHorizonThatMovedMeanwhile_Rule8(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	at := func(n int64) time.Time { return time.UnixMicro(n).UTC() }
	r := sqlstore.NewReaper(s, sqlstore.ReaperConfig{})
	for _, c := range []struct{ before, cutoff, want int64 }{
		{4, 9, 4}, {3, 8, 4}, {4, 7, 4}, {5, 6, 5},
	} {
		got, err := r.Move(t.Context(), "g", at(c.before), at(c.cutoff))
		require.NoError(t, err)
		require.Equal(t, at(c.want), got)
		var before, cutoff int64
		const query = "SELECT before, cutoff FROM idem_horizons WHERE scope = 'g'"
		require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&before, &cutoff))
		require.Equal(t, []int64{c.want, c.cutoff}, []int64{before, cutoff})
	}
}
