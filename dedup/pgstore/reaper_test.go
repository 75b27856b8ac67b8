package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// old is a record that a test puts into the tables: ages by the server's clock, zero of expired: in an hour.
type old struct {
	scope, id        string
	status           string // "done"
	made, expired    time.Duration
	origin, changed  time.Duration // zero: null
	generation       int
	leaseOver        time.Duration
	notEvent, notKey bool
}

func put(t testing.TB, pool *pgxpool.Pool, rows ...old) {
	t.Helper()
	for _, r := range rows {
		if r.status == "" {
			r.status = "done"
		}
		if r.expired == 0 {
			r.expired = -time.Hour
		}
		age := func(d time.Duration) any {
			if d == 0 {
				return nil
			}
			return d.Seconds()
		}
		args := []any{r.scope, r.id, r.status, age(r.made), age(r.expired), age(r.origin), age(r.changed), r.generation}
		if !r.notEvent {
			_, err := pool.Exec(t.Context(), `INSERT INTO processed_events
				(tenant, scope, event_type, event_id, status, created_at, expires_at, origin_time, updated_at, generation)
				SELECT '', $1, 'x', $2, $3, n - $4::float8 * s, n - $5::float8 * s, n - $6::float8 * s, n - $7::float8 * s, $8
				FROM (SELECT clock_timestamp() AS n, interval '1 second' AS s) c`, args...)
			require.NoError(t, err)
		}
		if !r.notKey {
			_, err := pool.Exec(t.Context(), `INSERT INTO idempotency_keys
				(tenant, scope, event_type, event_id, status, created_at, expires_at, origin_time, updated_at, generation, lease_until)
				SELECT '', $1, 'x', $2, $3, n - $4::float8 * s, n - $5::float8 * s, n - $6::float8 * s,
				       coalesce(n - $7::float8 * s, n - $4::float8 * s), $8, n - $9::float8 * s
				FROM (SELECT clock_timestamp() AS n, interval '1 second' AS s) c`, append(args, age(r.leaseOver))...)
			require.NoError(t, err)
		}
	}
}

// left are the records that are still there, as "table/id".
func left(t testing.TB, pool *pgxpool.Pool) (all []string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT coalesce(array_agg(r ORDER BY r), '{}') FROM
		(SELECT 'event/' || event_id FROM processed_events UNION ALL SELECT 'key/' || event_id FROM idempotency_keys) t(r)`).Scan(&all))
	return all
}

const day = 24 * time.Hour

// soonest is a configuration without waiting: a horizon may be used as soon as it is there.
func soonest() pgstore.ReaperConfig {
	return pgstore.ReaperConfig{Grace: time.Microsecond, Pause: -1}
}

// reap runs a new reaper, as a job from outside would.
func reap(t testing.TB, s *pgstore.Store, cfg pgstore.ReaperConfig) pgstore.ReapResult {
	t.Helper()
	result, err := pgstore.NewReaper(s, cfg).RunOnce(t.Context())
	require.NoError(t, err)
	require.False(t, result.Elsewhere)
	return result
}

// TestReaper_Lag_Rule8 (1): a partition is three days behind. The row of an event that may have a
// copy there stays, although the row has expired by every clock. The row is deleted after the
// partition has passed the time of the event.
func TestReaper_Lag_Rule8(t *testing.T) {
	s, pool := newStore(t)
	put(t, pool, old{scope: "g", id: "a", made: 3 * day, expired: day}, old{scope: "g", id: "b", made: day})
	record(t, s, "g", dedup.Progress{Topic: "t", Partition: 0, Next: 100, CaughtUp: true},
		dedup.Progress{Topic: "t", Partition: 1, Next: 7, Time: ago(3 * day)})
	for range 3 {
		result := reap(t, s, soonest())
		require.Zero(t, result.Events+result.Claims)
		require.Len(t, result.Scopes, 1)
		require.EqualValues(t, 1, result.Scopes[0].Partition, "who holds it up")
		require.Zero(t, result.Scopes[0].Horizon)
	}
	record(t, s, "g", dedup.Progress{Topic: "t", Partition: 1, Next: 99, Time: ago(time.Hour)})
	result := reap(t, s, soonest()) // announced
	require.Zero(t, result.Events+result.Claims)
	require.WithinDuration(t, ago(3*day), result.Scopes[0].Horizon, time.Minute)
	require.Len(t, left(t, pool), 4)
	result = reap(t, s, soonest())
	require.Equal(t, []int64{1, 1}, []int64{result.Events, result.Claims})
	require.Equal(t, []string{"event/b", "key/b"}, left(t, pool))
	result = reap(t, s, soonest())
	require.Zero(t, result.Events+result.Claims)
}

// TestReaper_StandsStill_Rule8 (2): the rows of a stopped group stay. So do the rows of a group
// that recorded no progress, and of a group with a partition without a known time.
func TestReaper_StandsStill_Rule8(t *testing.T) {
	s, pool := newStore(t)
	for _, scope := range []string{"stopped", "silent", "partly", "clock"} {
		put(t, pool, old{scope: scope, id: scope, made: 9 * day, expired: 8 * day})
	}
	record(t, s, "stopped", dedup.Progress{Topic: "t", Next: 100, Time: ago(9 * day)})
	record(t, s, "partly", dedup.Progress{Topic: "t", Next: 100, CaughtUp: true}, dedup.Progress{Topic: "t", Partition: 1})
	cfg := soonest()
	cfg.WallClock = []string{"clock", "clock", "nobody"}
	for range 3 {
		reap(t, s, cfg)
	}
	require.Equal(t, []string{"event/partly", "event/silent", "event/stopped", "key/partly", "key/silent", "key/stopped"}, left(t, pool))
	require.NoError(t, s.ForgetProgress(t.Context(), "partly", "t"))
	record(t, s, "partly", dedup.Progress{Topic: "u", Next: 1, CaughtUp: true})
	for range 2 {
		reap(t, s, soonest())
	}
	require.Len(t, left(t, pool), 4)
}

// TestReaper_Steps_Rule8 (4): a reaper that dies between its two steps has deleted no row. The next
// reaper does not delete before every claim sees the horizon.
func TestReaper_Steps_Rule8(t *testing.T) {
	s, pool := newStore(t)
	put(t, pool, old{scope: "g", id: "a", made: 3 * day, expired: day, origin: 3*day + time.Minute})
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	patient := soonest()
	patient.Grace = time.Hour
	for range 3 {
		require.Zero(t, reap(t, s, patient).Events)
	}
	require.Len(t, left(t, pool), 2)
	var made, before time.Time
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT created_at, before FROM processed_events, idem_horizons").Scan(&made, &before))
	require.WithinDuration(t, made, before, 10*time.Second)
	var moved time.Time
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT updated_at FROM idem_horizons").Scan(&moved))
	reap(t, s, patient)
	var again time.Time
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT updated_at FROM idem_horizons").Scan(&again))
	require.Equal(t, moved, again, "a horizon that moves in every run is never old enough")

	// The group was rewound before the second step: the rows that its records may need stay.
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 0, Time: ago(2 * day)})
	require.Zero(t, reap(t, s, soonest()).Events)
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	require.EqualValues(t, 1, reap(t, s, soonest()).Events)
	require.Empty(t, left(t, pool))
}

// TestReaper_Clocks_P10: a producer's clock puts the time of a record beyond the horizon. The event
// would be Fresh without its row, so the row stays.
func TestReaper_Clocks_P10(t *testing.T) {
	s, pool := newStore(t)
	put(t, pool, old{scope: "g", id: "early", made: 3 * day, expired: day, origin: 2 * day})
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	for range 3 {
		reap(t, s, soonest())
	}
	require.Equal(t, []string{"event/early", "key/early"}, left(t, pool))
	put(t, pool, old{scope: "g", id: "later", made: 2*day - time.Hour, expired: day}) // moves the horizon
	for range 3 {
		reap(t, s, soonest())
	}
	require.Empty(t, left(t, pool))
}

// TestReaper_Dead_Rule8 (5): the row of an event that was ever given up is kept for as long as its
// dead letter, also after the event was handled.
func TestReaper_Dead_Rule8(t *testing.T) {
	s, pool := newStore(t)
	put(t, pool,
		old{scope: "g", id: "dead", status: "dead", made: 20 * day, expired: 19 * day, changed: 10 * day},
		old{scope: "g", id: "dead at once", status: "dead", made: 20 * day, expired: 19 * day},
		old{scope: "g", id: "put right", generation: 1, made: 40 * day, expired: 12 * day, changed: 12 * day},
		old{scope: "g", id: "long dead", status: "dead", made: 41 * day, expired: 40 * day, changed: 31 * day})
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	for range 2 {
		reap(t, s, soonest())
	}
	require.Equal(t, []string{"event/dead", "event/dead at once", "event/put right", "key/dead", "key/dead at once", "key/put right"}, left(t, pool))
	cfg := soonest()
	cfg.DeadLetterRetention = 11 * day
	for range 2 {
		reap(t, s, cfg)
	}
	require.Equal(t, []string{"event/dead", "key/dead"}, left(t, pool))
}

// TestReaper_Stuck_Rule33: a stuck claim is reported and stays; after its retention it goes as all others.
func TestReaper_Stuck_Rule33(t *testing.T) {
	s, pool := newStore(t)
	put(t, pool,
		old{scope: "g", id: "stuck", status: "claimed", made: day, leaseOver: day, notEvent: true},
		old{scope: "g", id: "alive", status: "claimed", made: day, leaseOver: -time.Minute, notEvent: true},
		old{scope: "g", id: "just over", status: "claimed", made: day, leaseOver: time.Second, notEvent: true},
		old{scope: "g", id: "expired", status: "claimed", made: 9 * day, expired: 2 * day, leaseOver: 9 * day, notEvent: true},
		old{scope: "g", id: "released", status: "released", made: 9 * day, expired: 2 * day, notEvent: true},
		old{scope: "g", id: "moved", status: "moved", made: 9 * day, expired: 2 * day})
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	require.EqualValues(t, 2, reap(t, s, soonest()).Stuck)
	result := reap(t, s, soonest())
	require.EqualValues(t, 1, result.Stuck)
	require.Equal(t, []int64{1, 3}, []int64{result.Events, result.Claims})
	require.Equal(t, []string{"key/alive", "key/just over", "key/stuck"}, left(t, pool))
}

func TestReaper_Starts(t *testing.T) {
	s, pool := newStore(t)
	o := dedup.Origin{Topic: "t", Offset: 1}
	for _, id := range []string{"old", "new"} {
		_, err := s.CountStart(t.Context(), dedup.Key{Scope: "g", Type: "x", ID: id}, o)
		require.NoError(t, err)
	}
	_, err := pool.Exec(t.Context(), "UPDATE event_starts SET updated_at = clock_timestamp() - interval '25 hours' WHERE event_id = 'old'")
	require.NoError(t, err)
	require.EqualValues(t, 1, reap(t, s, soonest()).Starts)
	n, err := s.CountStart(t.Context(), dedup.Key{Scope: "g", Type: "x", ID: "new"}, o)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
}

// many puts n expired rows of a scope into processed_events.
func many(t testing.TB, pool *pgxpool.Pool, scope string, n int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `INSERT INTO processed_events (tenant, scope, event_type, event_id, created_at, expires_at)
		SELECT '', $1, 'x', i::text, clock_timestamp() - interval '3 days', clock_timestamp() - interval '2 days'
		FROM generate_series(1, $2) i`, scope, n)
	require.NoError(t, err)
}

// TestReaper_Jit: the estimated cost of a scan that is off would make Postgres compile the statement.
func TestReaper_Jit(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, param("jit", "on"))
	many(t, pool, "g", 10)
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	_, err := pool.Exec(t.Context(), `CREATE TABLE noted AS SELECT current_setting('jit') AS jit;
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO noted VALUES (current_setting('jit')); RETURN NULL; END $$;
		CREATE TRIGGER note AFTER DELETE ON processed_events FOR EACH STATEMENT EXECUTE FUNCTION note()`)
	require.NoError(t, err)
	reap(t, s, soonest())
	require.EqualValues(t, 10, reap(t, s, soonest()).Events)
	var noted string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT string_agg(DISTINCT jit, ' ' ORDER BY jit) FROM noted").Scan(&noted))
	require.Equal(t, "off on", noted, "of the reaper, and of the session")
}

// TestReaper_Batches_P08: the transactions are small, and never wait for a row that another
// transaction holds. The session has time-outs that are meant for others (P-27).
func TestReaper_Batches_P08(t *testing.T) {
	direct, pool := newStore(t)
	s := pgstore.New(newPool(t, pool.Config().ConnString(), param("statement_timeout", "200"), param("lock_timeout", "100")))
	many(t, pool, "g", 5000)
	record(t, direct, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	for _, sql := range []string{
		"CREATE TABLE batches (n bigint)",
		`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO batches SELECT count(*) FROM gone; PERFORM pg_sleep(0.3); RETURN NULL; END $$`,
		`CREATE TRIGGER note AFTER DELETE ON processed_events REFERENCING OLD TABLE AS gone
			FOR EACH STATEMENT EXECUTE FUNCTION note()`,
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	reap(t, s, soonest())
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), "SELECT 1 FROM processed_events WHERE event_id IN ('7', '4711') FOR UPDATE")
	require.NoError(t, err)
	var told []int64
	cfg := soonest()
	cfg.Deleted = func(rows int64) { told = append(told, rows) }
	require.EqualValues(t, 4998, reap(t, s, cfg).Events)
	var sizes []int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT array_agg(n) FROM batches").Scan(&sizes))
	require.Equal(t, []int64{1000, 1000, 1000, 1000, 998}, sizes)
	require.Equal(t, sizes, told)
	require.Equal(t, []string{"event/4711", "event/7"}, left(t, pool))
	require.NoError(t, tx.Commit(t.Context()))
	require.EqualValues(t, 2, reap(t, s, soonest()).Events)
}

// TestReaper_AtOnce_Rule58: of two reapers one works, and the other one finds out without waiting.
// After the death of a reaper, the next one works when the lease is over.
func TestReaper_AtOnce_Rule58(t *testing.T) {
	s, pool := newStore(t)
	many(t, pool, "g", 5000)
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	reap(t, s, soonest())
	cfg := soonest()
	cfg.Batch = 500
	working, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	busy := cfg
	busy.Deleted = func(int64) { first.Do(func() { close(working); <-goOn }) }
	done := make(chan pgstore.ReapResult)
	go func() {
		defer close(done)
		result, err := pgstore.NewReaper(s, busy).RunOnce(t.Context())
		if err != nil {
			t.Errorf("reap: %v", err)
		}
		done <- result
	}()
	leased := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM idem_leases").Scan(&n))
		return n
	}
	select {
	case <-working: // its first batch is deleted
	case <-done:
		require.Fail(t, "the first reaper has deleted no batch")
	}
	result, err := pgstore.NewReaper(s, cfg).RunOnce(t.Context())
	close(goOn)
	require.NoError(t, err)
	require.True(t, result.Elsewhere)
	require.EqualValues(t, 5000, (<-done).Events)
	require.Zero(t, leased(), "it went")

	for lease, elsewhere := range map[string]bool{"1 hour": true, "-1 second": false} {
		_, err := pool.Exec(t.Context(), fmt.Sprintf(`INSERT INTO idem_leases VALUES ('reaper', gen_random_uuid(),
			clock_timestamp() + interval '%s') ON CONFLICT (name) DO UPDATE SET lease_until = excluded.lease_until`, lease))
		require.NoError(t, err)
		result, err := pgstore.NewReaper(s, cfg).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, elsewhere, result.Elsewhere, lease)
	}
}

// TestReaper_LosesItsLease: a reaper that stood still for so long that another one took over leaves.
func TestReaper_LosesItsLease(t *testing.T) {
	s, pool := newStore(t)
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	cfg := soonest()
	results := make(chan pgstore.ReapResult, 100)
	cfg.Interval = 10 * time.Millisecond
	cfg.Observe = func(result pgstore.ReapResult, err error) {
		select {
		case results <- result:
		default:
		}
	}
	r := pgstore.NewReaper(s, cfg)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	require.False(t, (<-results).Elsewhere)
	_, err := pool.Exec(t.Context(), "UPDATE idem_leases SET token = gen_random_uuid()")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return (<-results).Elsewhere }, 10*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-done)
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM idem_leases").Scan(&n))
	require.Equal(t, 1, n, "the lease of the other one stays")
}

// TestReaper_OtherScopesBeside: a reaper that runs in a service does not keep a job with other
// scopes of the wall clock from its work.
func TestReaper_OtherScopesBeside(t *testing.T) {
	s, pool := newStore(t)
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	put(t, pool, old{scope: "replay", id: "1", made: 2 * day, expired: day})
	cfg, ran := soonest(), make(chan struct{}, 1)
	cfg.Interval = time.Hour
	cfg.Observe = func(pgstore.ReapResult, error) { ran <- struct{}{} }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- pgstore.NewReaper(s, cfg).Run(ctx) }()
	<-ran
	again, err := pgstore.NewReaper(s, soonest()).RunOnce(t.Context())
	require.NoError(t, err)
	require.True(t, again.Elsewhere, "the same work")
	job := soonest()
	job.WallClock = []string{"replay"}
	reap(t, s, job)
	require.EqualValues(t, 1, reap(t, s, job).Events)
	put(t, pool, old{scope: "http", id: "2", made: 2 * day, expired: day})
	_, err = pool.Exec(t.Context(), pgstore.CronSchema())
	require.NoError(t, err)
	for range 2 {
		_, err = pool.Exec(t.Context(), "CALL idem_reap(wall_clock => '{http}', grace => '1 microsecond')")
		require.NoError(t, err)
	}
	require.Empty(t, left(t, pool))
	stop()
	require.NoError(t, <-done)
}

// TestReaper_SlowScope: a scope whose deletion does not end in time holds up no other scope, and the
// error names it.
func TestReaper_SlowScope(t *testing.T) {
	s, pool := newStore(t)
	for _, scope := range []string{"a", "b"} {
		record(t, s, scope, dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
		put(t, pool, old{scope: scope, id: scope, made: 2 * day, expired: day})
	}
	reap(t, s, soonest())
	_, err := pool.Exec(t.Context(), `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF OLD.scope = 'a' THEN RAISE EXCEPTION 'slow' USING ERRCODE = 'query_canceled'; END IF;
			RETURN OLD;
		END $$;
		CREATE TRIGGER slow BEFORE DELETE ON processed_events FOR EACH ROW EXECUTE FUNCTION slow()`)
	require.NoError(t, err)
	result, err := pgstore.NewReaper(s, soonest()).RunOnce(t.Context())
	require.ErrorContains(t, err, `scope "a"`)
	require.NotContains(t, err.Error(), `scope "b"`)
	require.EqualValues(t, 1, result.Events)
	require.Equal(t, []string{"event/a", "key/a"}, left(t, pool))
}

func TestReaper_Config(t *testing.T) {
	s, _ := newStore(t)
	for _, cfg := range []pgstore.ReaperConfig{{Interval: -1}, {Grace: -1}, {DeadLetterRetention: -1}, {Batch: 10_001}, {Batch: -1}} {
		_, err := pgstore.NewReaper(s, cfg).RunOnce(t.Context())
		require.ErrorContains(t, err, "out of range")
		require.Error(t, pgstore.NewReaper(s, cfg).Run(t.Context()))
	}
}

// TestReaper_Cron: the procedure for pg_cron does the same.
func TestReaper_Cron(t *testing.T) {
	s, pool := newStore(t)
	many(t, pool, "g", 2500)
	put(t, pool,
		old{scope: "g", id: "alive", made: 3 * day}, old{scope: "silent", id: "silent", made: 9 * day, expired: 8 * day},
		old{scope: "clock", id: "clock", made: 9 * day, expired: 8 * day},
		old{scope: "g", id: "key", made: 9 * day, expired: 8 * day, notEvent: true},
		old{scope: "g", id: "dead", status: "dead", made: 9 * day, expired: 8 * day, notEvent: true},
		old{scope: "g", id: "early", made: 9 * day, expired: 8 * day, origin: day},
		old{scope: "partly", id: "partly", made: 9 * day, expired: 8 * day})
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	record(t, s, "partly", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true}, dedup.Progress{Topic: "u", Next: 1})
	for range 2 { // it may be run again
		_, err := pool.Exec(t.Context(), pgstore.CronSchema())
		require.NoError(t, err)
	}
	count := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM processed_events").Scan(&n))
		return n
	}
	call := func(args string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), "CALL idem_reap("+args+")")
		require.NoError(t, err)
	}
	call("wall_clock => '{clock}'")
	require.Equal(t, 2505, count(), "announced")
	call("wall_clock => '{clock}'")
	require.Equal(t, 2505, count(), "the grace is not over")
	_, err := pool.Exec(t.Context(), `INSERT INTO idem_leases VALUES
		('reaper cron ' || encode(sha256(convert_to(quote_literal('clock'), 'UTF8')), 'hex'), gen_random_uuid(), clock_timestamp() + interval '1 hour')`)
	require.NoError(t, err)
	call("wall_clock => '{clock}', grace => '1 microsecond'")
	require.Equal(t, 2505, count(), "another one is at work")
	_, err = pool.Exec(t.Context(), "DELETE FROM idem_leases")
	require.NoError(t, err)
	call("wall_clock => '{clock}', grace => '1 microsecond'")
	want := []string{"event/alive", "event/early", "event/partly", "event/silent", "key/alive", "key/dead", "key/early", "key/partly", "key/silent"}
	require.Equal(t, want, left(t, pool))

	// From outside, with the schema named, in place of any search path of the role.
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	var schema string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	_, err = conn.Exec(t.Context(), "SET search_path = pg_catalog")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), fmt.Sprintf("CALL %s.idem_reap('%s', dead_letters => '1 day', grace => '1 microsecond')", schema, schema))
	require.NoError(t, err)
	var path string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW search_path").Scan(&path))
	require.Equal(t, "pg_catalog", path, "the session is as it was")
	_, err = conn.Exec(t.Context(), "SET search_path = "+schema)
	require.NoError(t, err)
	call("dead_letters => '1 day', grace => '1 microsecond'")
	require.NotContains(t, left(t, pool), "key/dead")
}

// A scope with rows and without progress keeps all rows. The reaper logs such a scope once. Scopes
// that record progress, expire by the wall clock, or are new are not logged.
func TestReaper_Silent_Rule8(t *testing.T) {
	for table, open := range map[string]func(testing.TB, ...configure) (*pgstore.Store, *pgxpool.Pool){
		"idempotency_keys": newStore, "idempotency_keys_compact": newCompactStore,
	} {
		t.Run(table, func(t *testing.T) {
			s, pool := open(t)
			for _, scope := range []string{"loop", "consumer", "http"} {
				claimIn(t, s, scope)
			}
			_, err := pool.Exec(t.Context(), "UPDATE "+table+" SET created_at = created_at - interval '1 h'")
			require.NoError(t, err)
			claimIn(t, s, "new")
			record(t, s, "consumer", dedup.Progress{Topic: "t", Next: 1})
			cfg := soonest()
			cfg.WallClock = []string{"http"}
			require.Equal(t, []string{"loop"}, reap(t, s, cfg).Silent)

			var log strings.Builder
			ctx, stop := context.WithCancel(t.Context())
			runs := 0
			cfg.Interval, cfg.Logger = time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
			cfg.Observe = func(_ pgstore.ReapResult, err error) {
				require.NoError(t, err)
				if runs++; runs == 3 {
					stop()
				}
			}
			require.NoError(t, pgstore.NewReaper(s, cfg).Run(ctx))
			require.Equal(t, 1, strings.Count(log.String(), "records no progress"), log.String())
			require.Contains(t, log.String(), "scope=loop")
		})
	}
}

// claimIn leaves a row in a scope.
func claimIn(t *testing.T, s *pgstore.Store, scope string) {
	t.Helper()
	reqs := []dedup.Request{{Key: dedup.Key{Scope: scope, Type: "x", ID: "1"}, Retention: time.Hour}}
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, make([]dedup.Answer, 1)))
}
