package sqlite_test

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/stretchr/testify/require"
)

// soonest is a reaper that deletes expired rows at once.
func soonest() sqlstore.ReaperConfig {
	return sqlstore.ReaperConfig{Interval: time.Millisecond, Grace: time.Microsecond, Pause: -1,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func openWith(t testing.TB, path string, opts ...sqlite.Option) *sqlstore.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// expire lets n events of scope g have expired long ago.
func expire(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < ?)
		INSERT INTO processed_events (tenant, scope, event_type, event_id, status, record_version, created_at, expires_at,
			generation, retry, fence, origin_time)
		SELECT '', 'g', 'x', i || '-' || hex(randomblob(8)), 'done', 1, ?, ?, 0, 0, 1, ? FROM r`, n,
		time.Now().Add(-72*time.Hour).UnixMicro(), time.Now().Add(-48*time.Hour).UnixMicro(), time.Now().Add(-73*time.Hour).UnixMicro())
	require.NoError(t, err)
}

func countRows(t testing.TB, db *sql.DB, table string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(context.WithoutCancel(t.Context()), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func caughtUp(t testing.TB, s *sqlstore.Store) {
	t.Helper()
	require.NoError(t, s.RecordProgress(t.Context(), "g", []dedup.Progress{{Topic: "t", Next: 1, CaughtUp: true}}))
}

// A store deletes by itself until Close, which leaves no lease behind. With NoReaper it deletes no
// row.
func TestOpenReaps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	idle := openWith(t, path, sqlite.NoReaper())
	db := openDB(t, path)
	expire(t, db, 100)
	caughtUp(t, idle)
	require.Zero(t, countRows(t, db, "idem_leases"))
	s, err := sqlite.Open(t.Context(), path, sqlite.Reap(soonest()))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return countRows(t, db, "processed_events") == 0 }, 30*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	require.Zero(t, countRows(t, db, "idem_leases"))
	expire(t, db, 100)
	require.Equal(t, 100, countRows(t, db, "processed_events"))
	require.NoError(t, s.Close(), "a second time")

	s, err = sqlite.Open(t.Context(), path)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return countRows(t, db, "idem_leases") == 1 }, 30*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	require.Equal(t, 100, countRows(t, db, "processed_events"), "the grace of a minute")
}

func TestOpenRefusesABadReaper(t *testing.T) {
	_, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "idem.db"), sqlite.Reap(sqlstore.ReaperConfig{Batch: 1_000_000}))
	require.ErrorContains(t, err, "ReaperConfig.Batch is out of range")
}

// The goroutine of a store does not end with the context of Open, and a handler's transaction makes the reaper wait only.
func TestReaperWaitsForTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	ctx, cancel := context.WithCancel(t.Context())
	var failed error
	cfg := soonest()
	cfg.Observe = func(_ sqlstore.ReapResult, err error) {
		if err != nil {
			failed = err
		}
	}
	s, err := sqlite.Open(ctx, path, sqlite.Reap(cfg))
	require.NoError(t, err)
	cancel()
	db := openDB(t, path)
	caughtUp(t, s)
	answers := make([]dedup.Answer, 1)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, request("a"), answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
		slow, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // meanwhile the reaper waits
		defer cancel()
		<-slow.Done()
		return nil, nil
	}))
	expire(t, db, 100)
	require.Eventually(t, func() bool { return countRows(t, db, "processed_events") == 1 }, 30*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	require.NoError(t, failed)
}

// A file keeps its size while events come and go.
func TestFileStaysBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	s := openWith(t, path, sqlite.NoReaper())
	db := openDB(t, path)
	caughtUp(t, s)
	cfg := soonest()
	var first, last int64
	for round := range 5 {
		expire(t, db, 1200)
		for range 2 {
			_, err := sqlstore.NewReaper(s, cfg).RunOnce(t.Context())
			require.NoError(t, err)
		}
		require.Zero(t, countRows(t, db, "processed_events"))
		require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&last))
		if round == 0 {
			first = last
		}
	}
	require.LessOrEqual(t, last, first+first/5, "pages")
}

// A process is killed between two batches, and between the horizon and the rows. No event is lost:
// the next process goes on, and no event is Fresh meanwhile.
func TestKilledReaper(t *testing.T) {
	if path := os.Getenv("IDEM_TEST_REAPER"); path != "" {
		cfg := soonest()
		cfg.Batch, cfg.Pause = 10, time.Hour
		openWith(t, path, sqlite.Reap(cfg))
		<-t.Context().Done()
		return
	}
	path := filepath.Join(t.TempDir(), "idem.db")
	s := openWith(t, path, sqlite.NoReaper())
	db := openDB(t, path)
	expire(t, db, 30)
	caughtUp(t, s)
	var ids []string
	rows, err := db.QueryContext(t.Context(), "SELECT event_id FROM processed_events")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		ids = append(ids, "")
		require.NoError(t, rows.Scan(&ids[len(ids)-1]))
	}
	require.NoError(t, rows.Err())
	meets := func() (seen map[dedup.Verdict]int) {
		seen = make(map[dedup.Verdict]int)
		for _, id := range ids {
			answers := make([]dedup.Answer, 1)
			require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{{Key: dedup.Key{Scope: "g", Type: "x", ID: id},
				Origin: dedup.Origin{Topic: "t", Time: time.Now().Add(-73 * time.Hour)}, Retention: time.Hour}}, answers,
				func(*sql.Tx) ([]dedup.Completion, error) { return nil, nil }))
			seen[answers[0].Verdict]++
		}
		return seen
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledReaper$")
	cmd.Env = append(os.Environ(), "IDEM_TEST_REAPER="+path)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return countRows(t, db, "processed_events") < 30 }, 30*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Equal(t, 20, countRows(t, db, "processed_events"))
	require.Equal(t, map[dedup.Verdict]int{dedup.Done: 20, dedup.TooOld: 10}, meets())

	result, err := sqlstore.NewReaper(s, soonest()).RunOnce(t.Context())
	require.NoError(t, err)
	require.True(t, result.Elsewhere, "the lease of the killed one ends later")
	_, err = db.ExecContext(t.Context(), "UPDATE idem_leases SET lease_until = 0")
	require.NoError(t, err)
	result, err = sqlstore.NewReaper(s, soonest()).RunOnce(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 20, result.Events)
	require.Equal(t, map[dedup.Verdict]int{dedup.TooOld: 30}, meets())
}

// The events of a loop of one's own expire: not before the loop has gone on for longer than their retention (rule 8).
func TestOwnLoopForgets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	s := openWith(t, path, sqlite.NoReaper())
	db := openDB(t, path)
	offset := int64(0)
	run := func(ids []string, at time.Time) {
		r := idem.NewRouter(idem.ID(idem.FromHeader("event-id")), idem.Type(idem.FromHeader("event-type")))
		idem.OnTx(r, "paid", func(_ context.Context, _ *sql.Tx, _ idem.Event[struct{}]) error { return nil }, idem.Retention(75*time.Second))
		p, err := idem.NewProcessor(r, idem.Config{Store: s, Scope: "g", Lease: time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		require.NoError(t, err)
		var msgs []*idem.Message
		for _, id := range ids {
			msgs = append(msgs, &idem.Message{Topic: "payments", Offset: offset, Value: []byte("{}"), Time: at,
				Headers: []idem.Header{{Key: "event-id", Value: []byte(id)}, {Key: "event-type", Value: []byte("paid")}}})
			offset++
		}
		n, err := p.HandleBatch(t.Context(), msgs)
		require.NoError(t, err)
		require.Len(t, msgs, n)
		require.NoError(t, p.Close())
	}
	run([]string{"a", "b"}, time.Now().Add(-3*time.Hour))
	_, err := db.ExecContext(t.Context(), `UPDATE processed_events SET created_at = created_at - 7200000000,
		updated_at = updated_at - 7200000000, expires_at = expires_at - 7200000000`)
	require.NoError(t, err)
	reap := func() sqlstore.ReapResult {
		result, err := sqlstore.NewReaper(s, soonest()).RunOnce(t.Context())
		require.NoError(t, err)
		require.Len(t, result.Scopes, 1, "the scope records progress")
		return result
	}
	for range 2 {
		require.Zero(t, reap().Events, "nothing was consumed since they expired")
	}
	run([]string{"later"}, time.Now().Add(-time.Hour))
	reap() // announced
	require.EqualValues(t, 2, reap().Events)
	require.Equal(t, 1, countRows(t, db, "processed_events"))
}
